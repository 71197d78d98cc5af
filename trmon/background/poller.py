"""Calls a function at a fixed interval on a thread of its own, and at once when woken."""

from __future__ import annotations

from collections.abc import Callable
from threading import Event, Thread

import structlog

POLL_SECONDS = 1.0
NOTIFIED_POLL_SECONDS = 5.0
"""The interval while change notices wake the poller."""
PAUSE_SECONDS = 0.05
"""Shortest time between two polls."""

log = structlog.get_logger(__name__)


class Poller:
    """Calls `poll` each second, or each 5 s while change notices arrive; a failed poll is logged and tried again."""

    def __init__(
        self,
        name: str,
        poll: Callable[[], None],
        *,
        every_seconds: float = POLL_SECONDS,
        pause_seconds: float = PAUSE_SECONDS,
    ) -> None:
        """Args: pause_seconds: between a wake-up and the poll, so that one poll reads several changes."""
        self._name = name
        self._poll = poll
        self._every_seconds = every_seconds
        self._pause_seconds = pause_seconds
        self._is_notified: Callable[[], bool] = lambda: False
        self._woken = Event()
        self._stopping = Event()
        self._thread = Thread(target=self._run, name=f"trmon-{name}", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    @property
    def alive(self) -> bool:
        """Whether the thread runs."""
        return self._thread.is_alive()

    def slow_down_while(self, is_notified: Callable[[], bool]) -> None:
        """Poll each 5 s only while `is_notified` holds; `wake` must be called once when it no longer does."""
        self._is_notified = is_notified

    def wake(self) -> None:
        """Poll soon; may be called from any thread."""
        self._woken.set()

    def close(self) -> None:
        """Stop after the current poll."""
        self._stopping.set()
        self._woken.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._woken.clear()
            is_slow = self._try_poll() and self._is_notified()
            self._woken.wait(NOTIFIED_POLL_SECONDS if is_slow else self._every_seconds)
            self._stopping.wait(self._pause_seconds)

    def _try_poll(self) -> bool:
        try:
            self._poll()
        except Exception as error:  # noqa: BLE001 - the edge of the thread: the next poll tries again
            log.warning("poll_failed", poller=self._name, error=str(error))
            return False
        return True
