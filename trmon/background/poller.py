"""A poller: looks at something again and again, on a thread of its own, or at once when it is woken."""

from __future__ import annotations

from collections.abc import Callable
from threading import Event, Thread

import structlog

POLL_SECONDS = 1.0
TOLD_POLL_SECONDS = 5.0
"""The same while somebody wakes it for whatever comes."""
PAUSE_SECONDS = 0.05
"""Shortest rest between two looks."""

log = structlog.get_logger(__name__)


class Poller:
    """Calls `look` each second, less often while it is told what comes; a look that fails is logged and tried again."""

    def __init__(
        self,
        name: str,
        look: Callable[[], None],
        *,
        every_seconds: float = POLL_SECONDS,
        pause_seconds: float = PAUSE_SECONDS,
    ) -> None:
        """Args: pause_seconds: between being woken and looking; what comes meanwhile is looked at together."""
        self._name = name
        self._look = look
        self._every_seconds = every_seconds
        self._pause_seconds = pause_seconds
        self._is_told: Callable[[], bool] = lambda: False
        self._woken = Event()
        self._stopping = Event()
        self._thread = Thread(target=self._run, name=f"trmon-{name}", daemon=True)

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    @property
    def alive(self) -> bool:
        """Whether it looks."""
        return self._thread.is_alive()

    def rely_on(self, is_told: Callable[[], bool]) -> None:
        """Look each 5 seconds only, while it is told what comes; who can no longer tell it must wake it once more."""
        self._is_told = is_told

    def wake(self) -> None:
        """Look soon; may be called from any thread."""
        self._woken.set()

    def close(self) -> None:
        """Stop, after the look that is under way."""
        self._stopping.set()
        self._woken.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._woken.clear()
            has_looked = self._looked()
            self._woken.wait(TOLD_POLL_SECONDS if has_looked and self._is_told() else self._every_seconds)
            self._stopping.wait(self._pause_seconds)

    def _looked(self) -> bool:
        try:
            self._look()
        except Exception as error:  # noqa: BLE001 - the edge of the thread: the next look tries again
            log.warning("look_failed", at=self._name, error=str(error))
            return False
        return True
