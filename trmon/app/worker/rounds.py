"""Rounds: one pass over each run that asks for one, all written together; a run that fails stops no other."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Protocol

import structlog

from trmon.app.live import RunView
from trmon.app.worker.alarms import Alarms
from trmon.app.worker.keeper import Pass, RunKeeper
from trmon.app.worker.ledger import Tally
from trmon.app.worker.portrait import Vigil
from trmon.domain.errors import Fenced, NotFound
from trmon.domain.leases import Fences, in_slots, slot_of
from trmon.domain.outcome import Outcome
from trmon.domain.ports import Outcomes, RunLog
from trmon.domain.runs.outlook import Outlook

TICK_SECONDS = 1.0
"""How often, at most, the clock asks for a run that it has asked for without any change."""
BACKOFF_SECONDS = 1.0
MAX_BACKOFF_SECONDS = 60.0
COMMIT_TIMEOUT_SECONDS = 60.0

log = structlog.get_logger(__name__)


class Display(Protocol):
    """Where runs are seen; called from the worker's thread."""

    def show(self, view: RunView) -> None:
        """Replace what is known of a run."""

    def drop(self, run_id: int) -> None:
        """Forget a run."""


class Observer(Protocol):
    """Whoever counts what the worker does; called from its thread."""

    def passed(self, tally: Tally) -> None:
        """Note a pass that was written."""

    def failed(self, error: Exception) -> None:
        """Note a pass that failed; it will be tried again."""


@dataclass(frozen=True, slots=True)
class Setback:
    """How often a run has failed in a row, and when it is tried again."""

    failures: int
    retry_at: float


@dataclass(frozen=True, slots=True)
class Written:
    """A pass over a run, what is to be seen of it, and the future that ends when it is on disk, if it changed any."""

    run_id: int
    made: Pass
    view: RunView
    future: Future[None] | None


class Rounds:
    """The runs in memory: those that train, or of which something waits. Not thread-safe: one thread makes rounds."""

    def __init__(
        self, run_log: RunLog, *, outcomes: Outcomes, vigil: Vigil, display: Display, observer: Observer
    ) -> None:
        self._log = run_log
        self._outcomes = outcomes
        self._vigil = vigil
        self._display = display
        self._observer = observer
        self._fences: Fences | None = None
        self._keepers: dict[int, RunKeeper] = {}
        self._setbacks: dict[int, Setback] = {}
        self._alarms = Alarms()

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
        written: list[Written] = []
        for run_id in run_ids:
            setback = self._setbacks.get(run_id)
            if self._is_own(run_id) and (setback is None or setback.retry_at <= now):
                self._pass(run_id, written, now=now)
        return {one.run_id for one in written if self._settle(one, now=now)}

    def rest(self, slots: Collection[int] | None = None) -> None:
        """Write a checkpoint of every mind that has moved, in some slots or all: it need not be folded again."""
        resting = self._keepers if slots is None else in_slots(self._keepers, slots)
        for run_id in resting:
            try:
                outcome = self._keepers[run_id].rest()
                if outcome is not None:
                    self._commit(outcome).result(COMMIT_TIMEOUT_SECONDS)
            except Exception as error:  # noqa: BLE001 - the worker's edge: a checkpoint is only a short cut
                self._observer.failed(error)
                log.warning("checkpoint_failed", run_id=run_id, error=repr(error))

    def _pass(self, run_id: int, written: list[Written], *, now: float) -> None:
        try:
            keeper = self._keepers.get(run_id)
            if keeper is None:
                keeper = self._keepers[run_id] = RunKeeper(self._log, run_id, vigil=self._vigil, now=now)
            made, view = keeper.advance(now), keeper.view(now)
            outcome = made.outcome and replace(made.outcome, outlook=_outlook(view))
            written.append(Written(run_id, made, view, self._commit(outcome) if outcome else None))
        except NotFound:
            self._forget(run_id)
        except Exception as error:  # noqa: BLE001 - the worker's edge: this run is tried again, the others go on
            self._fail(run_id, error, now=now)

    def _settle(self, written: Written, *, now: float) -> bool:
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
        self._alarms.arm(run_id, max(keeper.due_at, now + TICK_SECONDS))
        if keeper.is_at_rest and not made.more:
            del self._keepers[run_id]
        return made.more

    def _fail(self, run_id: int, error: Exception, *, now: float) -> None:
        """What the keeper holds may be half changed: it is made anew from what was written."""
        self._keepers.pop(run_id, None)
        failures = self._setbacks[run_id].failures + 1 if run_id in self._setbacks else 1
        wait_seconds = min(BACKOFF_SECONDS * 2.0 ** min(failures - 1, 16), MAX_BACKOFF_SECONDS)
        self._setbacks[run_id] = Setback(failures, now + wait_seconds)
        self._alarms.arm(run_id, now + wait_seconds)
        self._observer.failed(error)
        log.error("run_pass_failed", run_id=run_id, failures=failures, retry_in_seconds=wait_seconds, exc_info=error)

    def _is_own(self, run_id: int) -> bool:
        return self._fences is None or slot_of(run_id) in self._fences

    def _commit(self, outcome: Outcome) -> Future[None]:
        fence = None if self._fences is None else self._fences[slot_of(outcome.run_id)]
        return self._outcomes.commit(outcome, fence=fence)

    def _forget(self, run_id: int) -> None:
        self._leave(run_id)
        self._display.drop(run_id)

    def _leave(self, run_id: int) -> None:
        self._keepers.pop(run_id, None)
        self._setbacks.pop(run_id, None)
        self._alarms.drop(run_id)


def _outlook(view: RunView) -> Outlook:
    return Outlook(
        gauge_ordinal=None if view.row is None else view.row.ordinal,
        expected_step_seconds=view.expected_step_seconds,
        advice=view.advice,
        proposed=view.proposed,
    )
