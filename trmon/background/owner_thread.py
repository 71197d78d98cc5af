"""Repeats a task at an interval on a thread of its own, on the one process of several whose task it is."""

from __future__ import annotations

from collections.abc import Callable
from threading import Event, Thread

import structlog

OWNER_CHECK_SECONDS = 10.0
"""How often a process checks whether the task has become its own."""

log = structlog.get_logger(__name__)


class OwnerThread:
    """Runs a task at the start and then at an interval; a failure is logged, counted and retried."""

    def __init__(
        self,
        name: str,
        task: Callable[[Callable[[], bool]], None],
        *,
        every_seconds: float,
        is_ours: Callable[[], bool],
        count: Callable[[str, int], None],
        failure: str,
    ) -> None:
        """Args: task: works in small steps while the function that it is given holds; is_ours: whether this process
        runs it, of several; count: adds to the counter of a name; failure: the event in the log.
        """
        self._task = task
        self._every_seconds = every_seconds
        self._is_ours = is_ours
        self._count = count
        self._failure = failure
        self._stopping = Event()
        self._thread = Thread(target=self._run, name=f"trmon-{name}", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def close(self) -> None:
        """Stop after the current step of the task; the next start goes on with the rest."""
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopping.is_set():
            if self._is_ours():
                self._try_task()
                self._stopping.wait(self._every_seconds)
            else:
                self._stopping.wait(min(OWNER_CHECK_SECONDS, self._every_seconds))

    def _try_task(self) -> None:
        try:
            self._task(lambda: not self._stopping.is_set())
        except Exception as error:  # noqa: BLE001 - the edge of the thread: a full disk must not end the service
            self._count("failures", 1)
            log.warning(self._failure, error=str(error))
