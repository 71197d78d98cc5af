"""How a process learns what others have changed: periodic threads, and readers of new events and messages."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from threading import Event, Thread

import structlog

from trmon.domain.access import EVERYTHING
from trmon.store.repositories.events import Events, StoredEvent
from trmon.store.repositories.reports import MessageCursor, NewMessages

POLL_SECONDS = 1.0
NOTIFIED_POLL_SECONDS = 5.0
"""The interval while change notices wake the poller."""
PAUSE_SECONDS = 0.05
"""Shortest time between two polls."""
OWNER_CHECK_SECONDS = 10.0
"""How often a process checks whether a task has become its own."""
PAGE_SIZE = 1000
OVERLAP_SECONDS = 3.0
"""How far each poll reads back before the last one: nearly every transaction of that age was visible to it."""
FULL_POLL_WINDOW_SECONDS = 60.0
"""How far a full poll reads back: longer than any transaction lasts."""
FULL_POLL_EVERY_SECONDS = 15.0
MAX_OPEN_IDS = 10_000
"""How many ids open transactions may hold at the first poll."""

log = structlog.get_logger(__name__)


class PeriodicThread:
    """Calls a task at an interval on its own thread, and at once when woken; a failure is logged and retried."""

    def __init__(
        self,
        name: str,
        task: Callable[[], object],
        *,
        every_seconds: float = POLL_SECONDS,
        retry_seconds: float = 0.0,
        pause_seconds: float = PAUSE_SECONDS,
        is_ours: Callable[[], bool] = lambda: True,
        failure: str = "poll_failed",
        on_failure: Callable[[], object] = lambda: None,
    ) -> None:
        """Args: retry_seconds: shortest wait after a failure; pause_seconds: between a wake-up and the task, so that
        one call reads several changes; is_ours: whether this process runs the task, of several; failure: the event in
        the log; on_failure: counts it.
        """
        self._name = name
        self._task = task
        self._every_seconds = every_seconds
        self._retry_seconds = retry_seconds
        self._pause_seconds = pause_seconds
        self._is_ours = is_ours
        self._failure = failure
        self._on_failure = on_failure
        self.is_notified: Callable[[], bool] = lambda: False
        """While it holds the task is called each 5 s only; `wake` must be called once when it no longer does."""
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

    def may_continue(self) -> bool:
        """Whether a long task continues with its next step: False once the thread is closed."""
        return not self._stopping.is_set()

    def wake(self) -> None:
        """Call the task soon; may be called from any thread."""
        self._woken.set()

    def close(self) -> None:
        """Stop after the current call."""
        self._stopping.set()
        self._woken.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._woken.clear()
            self._woken.wait(self._next_after_seconds())
            self._stopping.wait(self._pause_seconds)

    def _next_after_seconds(self) -> float:
        """Call the task if it is this process's, and return the seconds until the next call."""
        if not self._is_ours():
            return min(OWNER_CHECK_SECONDS, self._every_seconds)
        try:
            self._task()
        except Exception as error:  # noqa: BLE001 - the edge of the thread: the next call tries again
            self._on_failure()
            log.warning(self._failure, thread=self._name, error=str(error))
            return max(self._every_seconds, self._retry_seconds)
        return NOTIFIED_POLL_SECONDS if self.is_notified() else self._every_seconds


class EventFollower:
    """Passes on every event that is written after it was created."""

    def __init__(self, events: Events, *, on_events: Callable[[Sequence[StoredEvent]], None]) -> None:
        self._events = events
        self._on_events = on_events
        self._last_id = events.last_id()

    def poll(self) -> None:
        """Pass on new events; if the listener raises, the next poll passes the same events again."""
        while page := self._events.after(self._last_id, access=EVERYTHING, limit=PAGE_SIZE):
            self._on_events(page)
            self._last_id = page[-1].id
            if len(page) < PAGE_SIZE:
                break


class ReportPoller:
    """Reads ids beyond a mark that is old enough for everything before it to be visible; reports each message once."""

    def __init__(self, new_messages: NewMessages, *, clock: Callable[[], float]) -> None:
        """Args: clock: seconds, monotonic."""
        self._new_messages = new_messages
        self._clock = clock
        self._marks: deque[tuple[float, MessageCursor]] = deque()
        self._full_poll_at = clock()
        self._seen: dict[tuple[int, str], int] = {}

    def poll(self) -> set[int]:
        """Return the runs with a message that no earlier poll has found."""
        now, newest = self._clock(), self._new_messages.newest()
        if not self._marks:
            self._marks.append((now, {kind: max(0, id_ - MAX_OPEN_IDS) for kind, id_ in newest.items()}))
        found = self._new_messages.after(self._start_mark(now))
        new = {run_id for (run_id, table), id_ in found.items() if id_ > self._seen.get((run_id, table), 0)}
        self._seen.update(found)
        self._marks.append((now, newest))
        while now - self._marks[1][0] >= FULL_POLL_WINDOW_SECONDS:
            self._marks.popleft()
        return new

    def _start_mark(self, now: float) -> MessageCursor:
        """Return a mark a few seconds before the last poll or, for a full poll, the oldest one."""
        oldest = self._marks[0][1]
        if now - self._full_poll_at >= FULL_POLL_EVERY_SECONDS:
            self._full_poll_at = now
            self._seen = {key: id_ for key, id_ in self._seen.items() if id_ > oldest[key[1]]}
            return oldest
        polled_at = self._marks[-1][0]
        return next((mark for at, mark in reversed(self._marks) if polled_at - at >= OVERLAP_SECONDS), oldest)


class CommitSignal:
    """Counts commits; streams wait for the count to grow, and end when it is closed."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._count = 0
        self._n_waiting = 0
        self._changed = asyncio.Event()
        self.closed = False

    @property
    def count(self) -> int:
        """The number of commits so far."""
        return self._count

    def wake(self) -> None:
        """Count a commit; may be called from any thread, and after the loop has ended. Cheap if no stream waits."""
        self._count += 1
        if self._n_waiting and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._wake_waiting)

    def close(self) -> None:
        """End every stream; call it on the loop."""
        self.closed = True
        self._wake_waiting()

    async def wait(self, seen: int, *, timeout_seconds: float) -> bool:
        """Wait until the count is larger than `seen`; return False after the timeout."""
        # Before the count is read: `wake` counts first and then looks for waiting streams.
        self._n_waiting += 1
        try:
            changed = self._changed
            if self._count > seen or self.closed:
                return True
            await asyncio.wait_for(changed.wait(), timeout_seconds)
        except TimeoutError:
            return False
        finally:
            self._n_waiting -= 1
        return True

    def _wake_waiting(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()
