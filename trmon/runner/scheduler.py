"""Rounds: one pass over each run that asks for one, all written together; a run that fails stops no other."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import structlog

from trmon.domain.model.errors import Fenced, NotFound
from trmon.domain.model.messages import Unread
from trmon.domain.model.slots import Fences, in_slots, slot_of
from trmon.domain.ports import RunLog, RunUpdateWriter
from trmon.domain.state.run_update import RunUpdate
from trmon.runner.commit_batcher import CommitBatcher, PendingCommit, commit_updates
from trmon.runner.log_reader import PAGE
from trmon.runner.pass_changes import PassTally
from trmon.runner.run_context import WatchConfig
from trmon.runner.run_processor import RunProcessor
from trmon.runner.timer_queue import TimerQueue
from trmon.views.run_view_cache import RunView

TICK_SECONDS = 1.0
"""How often, at most, the clock asks for a run that it has asked for without any change."""
BACKOFF_SECONDS = 1.0
MAX_BACKOFF_SECONDS = 60.0
COMMIT_TIMEOUT_SECONDS = 60.0
READ_TOGETHER = 64
"""Of how many runs what came is read at once, and waits in memory."""

log = structlog.get_logger(__name__)


class ViewSink(Protocol):
    """Where runs are seen; called from the worker's thread."""

    def show(self, view: RunView) -> None:
        """Replace what is known of a run."""

    def drop(self, run_id: int) -> None:
        """Forget a run."""


class PassObserver(Protocol):
    """Whoever counts what the worker does; called from its thread."""

    def passed(self, tally: PassTally) -> None:
        """Note a pass that was written."""

    def failed(self, error: Exception) -> None:
        """Note a pass that failed; it will be tried again."""


@dataclass(frozen=True, slots=True)
class RunBackoff:
    """How often a run has failed in a row, and when it is tried again."""

    failures: int
    retry_at: float


class Scheduler:
    """The runs in memory: those that train, or of which something waits. Not thread-safe: one thread makes rounds."""

    def __init__(
        self,
        run_log: RunLog,
        *,
        outcomes: RunUpdateWriter,
        watch_config: WatchConfig,
        display: ViewSink,
        observer: PassObserver,
    ) -> None:
        self._log = run_log
        self._outcomes = outcomes
        self._watch_config = watch_config
        self._display = display
        self._observer = observer
        self._fences: Fences | None = None
        self._keepers: dict[int, RunProcessor] = {}
        self._setbacks: dict[int, RunBackoff] = {}
        self._alarms = TimerQueue()
        self._behind: set[int] = set()

    @property
    def watched(self) -> frozenset[int]:
        """The runs in memory."""
        return frozenset(self._keepers)

    def own(self, fences: Fences | None) -> frozenset[int]:
        """Watch the runs of these slots alone, or all of them; return the slots that are new.

        What is in memory of a slot that was lost, even if it is held again, is forgotten: another may have written.
        """
        former, self._fences = self._fences or {}, fences
        held = fences or {}
        lost = {slot for slot, fence in former.items() if held.get(slot) != fence}
        for run_id in in_slots(self._keepers.keys() | self._setbacks.keys(), lost):
            self._leave(run_id)
        return frozenset(slot for slot, fence in held.items() if former.get(slot) != fence)

    def due(self, now: float) -> set[int]:
        """Return the runs that the clock alone asks for: an end of patience, or another try; each once."""
        return self._alarms.ring(now)

    def make(self, run_ids: Iterable[int], *, now: float) -> set[int]:
        """Make one pass over each of these runs and write them together; return those of which more waits.

        A run that failed keeps its place until its time to be tried again has come.
        """
        dispatch = CommitBatcher(self._outcomes, fences=self._fences)
        for some in _some([run_id for run_id in run_ids if self._may_pass(run_id, now=now)]):
            mail = self._mail_of(some)
            for run_id in some:
                self._pass(run_id, dispatch, mail=mail.get(run_id), now=now)
        dispatch.send()
        return {one.run_id for one in dispatch.written if self._settle(one, now=now)}

    def rest(self, slots: Collection[int] | None = None) -> None:
        """Write a checkpoint of every mind that has moved, in some slots or all: it need not be folded again."""
        resting = self._keepers if slots is None else in_slots(self._keepers, slots)
        for some in _some(list(resting)):
            outcomes = [outcome for run_id in some if (outcome := self._at_rest(run_id)) is not None]
            futures = commit_updates(self._outcomes, outcomes, fences=self._fences)
            for outcome, future in zip(outcomes, futures, strict=True):
                try:
                    future.result(COMMIT_TIMEOUT_SECONDS)
                except Exception as error:  # noqa: BLE001 - the worker's edge: a checkpoint is only a short cut
                    self._unsaved(outcome.run_id, error)

    def _at_rest(self, run_id: int) -> RunUpdate | None:
        try:
            return self._keepers[run_id].rest()
        except Exception as error:  # noqa: BLE001 - the worker's edge: a checkpoint is only a short cut
            self._unsaved(run_id, error)
            return None

    def _unsaved(self, run_id: int, error: Exception) -> None:
        self._observer.failed(error)
        log.warning("checkpoint_failed", run_id=run_id, error=repr(error))

    def _mail_of(self, run_ids: Sequence[int]) -> Mapping[int, Unread]:
        """Read what came of runs in memory; one that is not in the answer reads for itself.

        So do all of them if there is much, or if anything of it cannot be read: they hear of it if it is theirs.
        """
        known = ((run_id, self._keepers.get(run_id)) for run_id in run_ids if run_id not in self._behind)
        read = {run_id: keeper.read for run_id, keeper in known if keeper is not None}
        if len(read) < 2:
            return {}
        try:
            return self._log.mail(read, limit=PAGE) or {}
        except Exception:  # noqa: BLE001 - the worker's edge: it is counted once it is known whose it is
            return {}

    def _pass(self, run_id: int, dispatch: CommitBatcher, *, mail: Unread | None, now: float) -> None:
        try:
            keeper = self._keepers.get(run_id)
            if keeper is None:
                keeper = self._keepers[run_id] = RunProcessor(
                    self._log, run_id, watch_config=self._watch_config, now=now
                )
            made = keeper.advance(now, mail=mail)
            dispatch.add(made, keeper.view(now))
        except NotFound:
            self._forget(run_id)
        except Exception as error:  # noqa: BLE001 - the worker's edge: this run is tried again, the others go on
            self._fail(run_id, error, now=now)

    def _settle(self, written: PendingCommit, *, now: float) -> bool:
        run_id, made = written.run_id, written.made
        try:
            if written.future is not None:
                written.future.result(COMMIT_TIMEOUT_SECONDS)
        except Fenced as error:
            self._leave(run_id)
            log.warning("run_lost", run_id=run_id, reason=str(error))
            return False
        except Exception as error:  # noqa: BLE001 - the worker's edge: nothing of the pass was written
            self._fail(run_id, error, now=now)
            return False
        self._setbacks.pop(run_id, None)
        keeper = self._keepers[run_id]
        self._display.show(written.view)
        self._observer.passed(made.tally)
        (self._behind.add if made.more else self._behind.discard)(run_id)
        self._alarms.arm(run_id, max(keeper.due_at, now + TICK_SECONDS))
        if keeper.is_at_rest and not made.more:
            del self._keepers[run_id]
        return made.more

    def _fail(self, run_id: int, error: Exception, *, now: float) -> None:
        """What the keeper holds may be half changed: it is made anew from what was written."""
        self._keepers.pop(run_id, None)
        failures = self._setbacks[run_id].failures + 1 if run_id in self._setbacks else 1
        wait_seconds = min(BACKOFF_SECONDS * 2.0 ** min(failures - 1, 16), MAX_BACKOFF_SECONDS)
        self._setbacks[run_id] = RunBackoff(failures, now + wait_seconds)
        self._alarms.arm(run_id, now + wait_seconds)
        self._observer.failed(error)
        log.error("run_pass_failed", run_id=run_id, failures=failures, retry_in_seconds=wait_seconds, exc_info=error)

    def _may_pass(self, run_id: int, *, now: float) -> bool:
        setback = self._setbacks.get(run_id)
        is_own = self._fences is None or slot_of(run_id) in self._fences
        return is_own and (setback is None or setback.retry_at <= now)

    def _forget(self, run_id: int) -> None:
        self._leave(run_id)
        self._display.drop(run_id)

    def _leave(self, run_id: int) -> None:
        self._keepers.pop(run_id, None)
        self._setbacks.pop(run_id, None)
        self._behind.discard(run_id)
        self._alarms.drop(run_id)


def _some(run_ids: Sequence[int]) -> Iterator[Sequence[int]]:
    for first in range(0, len(run_ids), READ_TOGETHER):
        yield run_ids[first : first + READ_TOGETHER]
