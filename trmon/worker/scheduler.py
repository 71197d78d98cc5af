"""Runs passes over the runs that need one, by message or timer, and commits them together.

A run that fails does not stop the others.
"""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from heapq import heappop, heappush
from typing import Protocol, TypeVar

import structlog

from trmon.domain.errors import PASSING, Fenced, NotFound
from trmon.domain.messages import NewestMessage, Unread
from trmon.domain.ownership import Fences, in_slots, slot_of
from trmon.domain.pipeline.publish import RunUpdate, RunView
from trmon.store.repositories.run_log import RunLog
from trmon.worker.messages import QUANTUM, Damaged, MessageId, StoredMessage, message_id, set_aside
from trmon.worker.pass_changes import CommitBatcher, PassResult, PassTally, RunUpdateWriter, commit_updates
from trmon.worker.recovery import PAGE
from trmon.worker.run_context import WatchConfig
from trmon.worker.run_processor import RunProcessor

LIVE_SECONDS = 300.0
"""A run is live if its newest report or scalars were sent this recently, by the sender's clock; older ones, and those
without a time, are history: an import, a replay, a spool, or what came while no worker ran."""


class Priority(Enum):
    """Which runs get the time of a round first."""

    LIVE = "live"
    QUIET = "quiet"
    """A run without reports or scalars, or without unread messages."""
    HISTORY = "history"


def is_live(sent_at: float, *, now: float) -> bool:
    """Whether a report or scalars sent at this time are of a trainer that runs now."""
    return now - sent_at <= LIVE_SECONDS


def priority_of(newest: NewestMessage | None, *, now: float) -> Priority:
    """Return the priority of a run by its newest message; None: it has none."""
    if newest is None or newest.sent_at is None:
        return Priority.QUIET
    if is_live(newest.sent_at, now=now):
        return Priority.LIVE
    return Priority.HISTORY if newest.is_unread else Priority.QUIET


class WaitingRuns:
    """Runs by priority, each once, and in the order in which they came. Not thread-safe."""

    def __init__(self) -> None:
        self._priorities: dict[int, Priority] = {}

    def __bool__(self) -> bool:
        return bool(self._priorities)

    def add(self, run_id: int, priority: Priority) -> None:
        """Add a run behind the others of its priority; one that waits keeps its place, unless it becomes live."""
        if priority is Priority.LIVE and self._priorities.get(run_id) is not priority:
            self.remove(run_id)
        self._priorities.setdefault(run_id, priority)

    def of(self, priority: Priority) -> list[int]:
        """Return the runs of a priority, first come first."""
        return [run_id for run_id, known in self._priorities.items() if known is priority]

    def remove(self, run_id: int) -> None:
        """Remove a run, if it waits."""
        self._priorities.pop(run_id, None)


TICK_SECONDS = 1.0
"""Shortest time until a timer that a pass has not moved is due again."""
BACKOFF_SECONDS = 1.0
MAX_BACKOFF_SECONDS = 60.0
COMMIT_TIMEOUT_SECONDS = 60.0
GROUP_SIZE = 64
"""How many runs have their new messages read in one query and held in memory."""
LIVE_ROUND_SECONDS = 1.5
"""How long a round runs passes over live runs, if so many wait."""
QUIET_SECONDS, OTHER_SECONDS = 0.125, 0.25
"""How long it then continues with quiet runs, and with these and history together: a live run waits as long."""

T = TypeVar("T")
log = structlog.get_logger(__name__)


class TimerQueue:
    """The due time of each run, on the server's clock. Not thread-safe."""

    def __init__(self) -> None:
        self._due_at: dict[int, float] = {}
        self._queue: list[tuple[float, int]] = []
        self._queued_at: dict[int, float] = {}

    def schedule(self, run_id: int, at: float) -> None:
        """Set a run's due time in place of the former one; infinity cancels it."""
        if at == math.inf:
            self.cancel(run_id)
            return
        self._due_at[run_id] = at
        self._enqueue(run_id, at)

    def cancel(self, run_id: int) -> None:
        """Remove a run's due time."""
        self._due_at.pop(run_id, None)

    def pop_due(self, now: float) -> set[int]:
        """Return the runs that are due and remove their due times."""
        due: set[int] = set()
        while self._queue and self._queue[0][0] <= now:
            at, run_id = heappop(self._queue)
            if self._queued_at.get(run_id) == at:
                del self._queued_at[run_id]
            due_at = self._due_at.get(run_id, math.inf)
            if due_at <= now:
                del self._due_at[run_id]
                due.add(run_id)
            elif due_at < math.inf:
                self._enqueue(run_id, due_at)
        return due

    def _enqueue(self, run_id: int, at: float) -> None:
        """Queue a run unless it has an earlier entry: a timer that moves at each step keeps one entry until then."""
        if at < self._queued_at.get(run_id, math.inf):
            self._queued_at[run_id] = at
            heappush(self._queue, (at, run_id))


class ViewSink(Protocol):
    """Stores the views of runs; called from the worker's thread."""

    def put(self, view: RunView, /) -> None:
        """Store a run's view in place of the former one."""

    def remove(self, run_id: int, /) -> None:
        """Remove a run's view."""


class PassObserver(Protocol):
    """Counts passes; called from the worker's thread."""

    def pass_committed(self, tally: PassTally, /) -> None:
        """Count a pass that was committed."""

    def pass_failed(self, error: Exception, /) -> None:
        """Count a pass that failed and will be retried."""


MAX_FAILURES = 3
"""How often in a row the passes over a run fail before its messages are read one by one."""


@dataclass(slots=True)
class Failures:
    """The failed passes over a run: how many `in_a_row`, when the run is retried, and which message fails them.

    `lasting` counts those in a row that are not passing. At the limit a pass reads `at_most` no message, which shows
    that it is a message that fails, and then one by one; the one that fails alone is `replaced` by a damaged one.
    """

    in_a_row: int = 0
    retry_at: float = -math.inf
    lasting: int = 0
    at_most: int | None = None
    replaced: dict[MessageId, Damaged] = field(default_factory=dict)

    def pass_failed(self, error: Exception, alone: StoredMessage | None) -> StoredMessage | None:
        """Count a failure; return the only message of the pass if it is replaced from now on."""
        self.in_a_row += 1
        if isinstance(error, PASSING):
            self.at_most = None if self.at_most is None else 0
            return None
        self.lasting += 1
        if alone is not None:
            key = message_id(alone)
            self.replaced[key] = set_aside(self.replaced.get(key, alone), error)
            self.in_a_row, self.lasting, self.at_most = 1, 0, None
        elif self.lasting >= MAX_FAILURES:
            self.at_most = 0
        return alone

    def pass_committed(self, *, has_more: bool) -> None:
        """Read the next message alone, until there is none."""
        self.in_a_row, self.retry_at = 0, -math.inf
        if self.at_most is not None and has_more:
            self.at_most = 1
        else:
            self.lasting, self.at_most = 0, None


NO_FAILURES = Failures()


class Scheduler:
    """Holds the processors of loaded runs: those that train or have pending work. Not thread-safe."""

    def __init__(
        self,
        run_log: RunLog,
        *,
        writer: RunUpdateWriter,
        watch_config: WatchConfig,
        views: ViewSink,
        observer: PassObserver,
    ) -> None:
        self._log = run_log
        self._writer = writer
        self._watch_config = watch_config
        self._views = views
        self._observer = observer
        self._fences: Fences | None = None
        self._processors: dict[int, RunProcessor] = {}
        self._failures: dict[int, Failures] = {}
        self._timers = TimerQueue()
        self._behind: set[int] = set()
        """Runs with more unread messages than one page."""
        self._live: set[int] = set()
        """Loaded runs whose newest report or scalars were live when they were read."""
        self._waiting = WaitingRuns()

    @property
    def loaded(self) -> frozenset[int]:
        """The runs in memory."""
        return frozenset(self._processors)

    def set_fences(self, fences: Fences | None) -> frozenset[int]:
        """Own the runs of these slots only, or all runs; return the slots that are new.

        Runs of a slot that was lost are unloaded, even if the slot is held again: another worker may have written.
        """
        former, self._fences = self._fences or {}, fences
        held = fences or {}
        lost = {slot for slot, fence in former.items() if held.get(slot) != fence}
        for run_id in in_slots(self._processors.keys() | self._failures.keys(), lost):
            self._unload(run_id)
        return frozenset(slot for slot, fence in held.items() if former.get(slot) != fence)

    def unload_all(self) -> None:
        """Unload every run after writing its checkpoint, and forget when runs are retried."""
        self.write_checkpoints()
        for run_id in self._processors.keys() | self._failures.keys():
            self._unload(run_id)

    def pop_due(self, now: float) -> set[int]:
        """Return the runs whose timer is due, at the end of a grace period or of a backoff; each once."""
        return self._timers.pop_due(now)

    @property
    def has_waiting(self) -> bool:
        """Whether runs wait for a pass."""
        return bool(self._waiting)

    def enqueue(self, run_ids: Sequence[int], *, now: float) -> None:
        """Have runs wait for a pass, in this order behind those of their priority; all but live ones are looked at."""
        unknown = [run_id for run_id in run_ids if run_id not in self._live]
        try:
            newest = self._log.reports.newest(unknown) if unknown else {}
        except Exception as error:  # noqa: BLE001 - the worker's edge: each run meets the error in its own pass
            log.warning("newest_messages_not_read", error=repr(error))
            newest = {}
        for run_id in run_ids:
            found = Priority.LIVE if run_id in self._live else priority_of(newest.get(run_id), now=now)
            self._waiting.add(run_id, found)

    def run_round(self, *, now: float) -> None:
        """Run passes over the runs that wait or whose timer is due, for 2 s at most; the others keep waiting.

        Live runs come first. Each priority gets one pass at least, so that none waits for ever.
        """
        for run_id in sorted(self.pop_due(now)):
            self._waiting.add(run_id, Priority.LIVE if run_id in self._live else Priority.QUIET)
        behind = self._run_waiting(Priority.LIVE, LIVE_ROUND_SECONDS, now=now)
        began_at = time.monotonic()
        behind += self._run_waiting(Priority.QUIET, QUIET_SECONDS, now=now)
        behind += self._run_waiting(Priority.HISTORY, began_at + OTHER_SECONDS - time.monotonic(), now=now)
        self.enqueue(behind, now=now)

    def _run_waiting(self, priority: Priority, seconds: float, *, now: float) -> list[int]:
        waiting = self._waiting.of(priority)
        return sorted(self.run_passes(waiting, now=now, until=time.monotonic() + seconds)) if waiting else []

    def run_passes(self, run_ids: Iterable[int], *, now: float, until: float = math.inf) -> set[int]:
        """Run one pass over each of these runs and commit them together; return those with more unread messages.

        A run that failed is skipped until its retry time.
        Args: until: when to stop, by `time.monotonic`, after one pass at least.
        """
        batcher, mine = CommitBatcher(self._writer, fences=self._fences), list[int]()
        for run_id in run_ids:
            if self._may_pass(run_id, now=now):
                mine.append(run_id)
            else:
                self._waiting.remove(run_id)
        for group in _in_time(_groups(mine), until):
            unread = self._read_messages(group)
            for run_id in _in_time(group, until):
                self._waiting.remove(run_id)
                self._run_pass(run_id, batcher, unread=unread.get(run_id), now=now)
        batcher.send()
        return {result.view.run.id for result in batcher.sent if self._finish_pass(result, now=now)}

    def write_checkpoints(self, slots: Collection[int] | None = None) -> None:
        """Write a checkpoint of every loaded run that has changed since its last one, in some slots or all."""
        run_ids = self._processors if slots is None else in_slots(self._processors, slots)
        for group in _groups(list(run_ids)):
            updates = [update for run_id in group if (update := self._checkpoint(run_id)) is not None]
            futures = commit_updates(self._writer, updates, fences=self._fences)
            for update, future in zip(updates, futures, strict=True):
                try:
                    self._watch_config.heartbeat.wait_for(future, timeout_seconds=COMMIT_TIMEOUT_SECONDS)
                except Exception as error:  # noqa: BLE001 - the worker's edge: without a checkpoint a restart is slower
                    self._checkpoint_failed(update.run_id, error)

    def _checkpoint(self, run_id: int) -> RunUpdate | None:
        self._watch_config.heartbeat.beat()
        try:
            return self._processors[run_id].checkpoint_update()
        except Exception as error:  # noqa: BLE001 - the worker's edge: without a checkpoint a restart is slower
            self._checkpoint_failed(run_id, error)
            return None

    def _checkpoint_failed(self, run_id: int, error: Exception) -> None:
        self._observer.pass_failed(error)
        log.warning("checkpoint_failed", run_id=run_id, error=repr(error))

    def _read_messages(self, run_ids: Sequence[int]) -> Mapping[int, Unread]:
        """Return the new messages of loaded runs; a run that is missing from the answer reads its own.

        A run with many is missing. The answer is empty if all have too many or any cannot be read: then each run meets
        its own error.
        """
        known = ((run_id, self._processors.get(run_id)) for run_id in run_ids if run_id not in self._behind)
        read = {run_id: processor.read for run_id, processor in known if processor is not None}
        if len(read) < 2:
            return {}
        try:
            unread = self._log.unread(read, limit=PAGE) or {}
        except Exception:  # noqa: BLE001 - the worker's edge: the run that it belongs to counts it
            return {}
        return {run_id: one for run_id, one in unread.items() if max(len(one.notices), len(one.reports)) <= QUANTUM}

    def _run_pass(self, run_id: int, batcher: CommitBatcher, *, unread: Unread | None, now: float) -> None:
        self._watch_config.heartbeat.beat()
        try:
            processor = self._processors.get(run_id)
            if processor is None:
                processor = RunProcessor(self._log, run_id, watch_config=self._watch_config, now=now)
                self._processors[run_id] = processor
            known = self._failures.get(run_id, NO_FAILURES)
            batcher.add(processor.run_pass(now, unread=unread, at_most=known.at_most, replaced=known.replaced))
        except NotFound:
            self._unload(run_id)
            self._views.remove(run_id)
        except Exception as error:  # noqa: BLE001 - the worker's edge: this run is retried, the others continue
            self._fail(run_id, error, now=now)

    def _finish_pass(self, result: PassResult, *, now: float) -> bool:
        """Wait for the commit; return whether the run has more unread messages."""
        run_id = result.view.run.id
        try:
            if result.commit is not None:
                self._watch_config.heartbeat.wait_for(result.commit, timeout_seconds=COMMIT_TIMEOUT_SECONDS)
        except Fenced as error:
            self._unload(run_id)
            log.warning("run_lost", run_id=run_id, reason=str(error))
            return False
        except Exception as error:  # noqa: BLE001 - the worker's edge: nothing of the pass was written
            self._fail(run_id, error, now=now)
            return False
        if run_id in self._failures:
            self._failures[run_id].pass_committed(has_more=result.has_more)
        processor = self._processors[run_id]
        self._views.put(result.view)
        self._observer.pass_committed(result.tally)
        (self._behind.add if result.has_more else self._behind.discard)(run_id)
        if result.sent_at is not None:
            (self._live.add if is_live(result.sent_at, now=now) else self._live.discard)(run_id)
        self._timers.schedule(run_id, max(processor.due_at, now + TICK_SECONDS))
        if processor.is_idle and not result.has_more:
            del self._processors[run_id]
            self._live.discard(run_id)
            self._failures.pop(run_id, None)
        return result.has_more

    def _fail(self, run_id: int, error: Exception, *, now: float) -> None:
        """Drop the processor, whose state may be half changed, and retry with a new one after a backoff."""
        processor = self._processors.pop(run_id, None)
        failures = self._failures.setdefault(run_id, Failures())
        replaced = failures.pass_failed(error, None if processor is None else processor.alone)
        if replaced is not None:
            kind = "report" if message_id(replaced)[0] else "notice"
            log.error("message_quarantined", run_id=run_id, kind=kind, id=replaced.id, exc_info=error)
        n = failures.in_a_row
        wait_seconds = min(BACKOFF_SECONDS * 2.0 ** min(n - 1, 16), MAX_BACKOFF_SECONDS)
        failures.retry_at = now + wait_seconds
        self._timers.schedule(run_id, failures.retry_at)
        self._observer.pass_failed(error)
        log.error("run_pass_failed", run_id=run_id, failures=n, retry_in_seconds=wait_seconds, exc_info=error)

    def _may_pass(self, run_id: int, *, now: float) -> bool:
        is_owned = self._fences is None or slot_of(run_id) in self._fences
        return is_owned and self._failures.get(run_id, NO_FAILURES).retry_at <= now

    def _unload(self, run_id: int) -> None:
        self._processors.pop(run_id, None)
        self._failures.pop(run_id, None)
        self._behind.discard(run_id)
        self._live.discard(run_id)
        self._timers.cancel(run_id)


def _groups(run_ids: Sequence[int]) -> Iterator[Sequence[int]]:
    for first in range(0, len(run_ids), GROUP_SIZE):
        yield run_ids[first : first + GROUP_SIZE]


def _in_time(items: Iterable[T], until: float) -> Iterator[T]:
    """Yield items until a time by `time.monotonic`, one at least."""
    for item in items:
        yield item
        if time.monotonic() >= until:
            return
