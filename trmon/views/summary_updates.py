"""Keeps the stored summaries of runs current in the background, for a tenth of the time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Protocol

import structlog

from trmon.domain.health.run_summary import OutdatedSummary, RunSummary, SummaryBasis
from trmon.domain.model.access import EVERYTHING
from trmon.domain.model.errors import LakeUnavailable, NotFound, Overloaded
from trmon.domain.ports import Ownership
from trmon.store import Store
from trmon.views.run_summaries import summarize_run

SLICE_SECONDS = 0.1
"""How long one call of `poll`, each second, makes summaries: runs are folded in the rest of the time."""
QUERY_SHARE = 20.0
"""How many times as long as the query for outdated summaries took, the next one waits."""
LIVE_SECONDS = 5.0
"""Shortest time between two summaries of a run that goes on."""
AGAIN_SECONDS = 60.0
"""When a summary that was not made, or not stored, is made again, if the run does not change before."""
LIVE_PER_OTHER = 3
"""How many live runs go before one that is not: a backlog neither delays them much nor waits for ever."""

log = structlog.get_logger(__name__)


class SummarySink(Protocol):
    """Stores summaries; one that is lost is made again."""

    def write(self, summaries: Sequence[RunSummary], /) -> object:
        """Store summaries."""


class SummaryUpdater:
    """Makes the summaries that are outdated, of the runs that this process owns; used by one thread.

    What is outdated is asked of the database each time: a restart, another owner and a clock that is set need no
    attention, and a summary that failed to be stored is still outdated.
    """

    def __init__(
        self,
        store: Store,
        sink: SummarySink,
        *,
        ownership: Ownership,
        clock: Callable[[], float],
        monotonic: Callable[[], float],
    ) -> None:
        self._store = store
        self._sink = sink
        self._ownership = ownership
        self._clock = clock
        self._monotonic = monotonic
        self._tried: dict[int, tuple[SummaryBasis, float]] = {}
        self._waiting: deque[OutdatedSummary] = deque()
        self._query_at = 0.0

    def poll(self) -> None:
        """Make and store outdated summaries for a tenth of a second, or try one at least."""
        until = self._monotonic() + SLICE_SECONDS
        if self._monotonic() >= self._query_at:
            self._waiting = deque(self._outdated())
        made: list[RunSummary] = []
        while self._waiting:
            made += self._made(self._waiting.popleft())
            if self._monotonic() >= until:
                break
        if made:
            self._sink.write(made)

    def _outdated(self) -> list[OutdatedSummary]:
        """Return the runs to summarize, in order, and set when to ask again."""
        started_at = self._monotonic()
        fences = self._ownership.fences()
        found = self._store.summaries.outdated(None if fences is None else tuple(fences))
        ended_at = self._monotonic()
        self._query_at = ended_at + QUERY_SHARE * (ended_at - started_at)
        known = {outdated.run_id for outdated in found}
        self._tried = {run_id: tried for run_id, tried in self._tried.items() if run_id in known}
        return in_order([outdated for outdated in found if self._is_due(outdated, ended_at)])

    def _is_due(self, outdated: OutdatedSummary, at: float) -> bool:
        basis, tried_at = self._tried.get(outdated.run_id, (None, at - AGAIN_SECONDS))
        wait_seconds = AGAIN_SECONDS if basis == outdated.basis else LIVE_SECONDS if outdated.is_live else 0.0
        return at - tried_at >= wait_seconds

    def _made(self, outdated: OutdatedSummary) -> list[RunSummary]:
        """Return the summary of a run, or nothing if it cannot be made."""
        run_id, basis = outdated.run_id, outdated.basis
        self._tried[run_id] = basis, self._monotonic()
        try:
            run = self._store.runs.by_id(run_id)
            return [summarize_run(self._store, run, basis=basis, access=EVERYTHING, now=self._clock())]
        except (NotFound, LakeUnavailable, Overloaded):  # deleted, no batch is closed yet, or the lake is away
            return []
        except Exception as error:  # noqa: BLE001 - a run that cannot be diagnosed must not stop those behind it
            log.warning("run_not_summarized", run=run_id, error=repr(error))
            return []


def in_order(outdated: Sequence[OutdatedSummary]) -> list[OutdatedSummary]:
    """Return live runs, oldest summary first, and after each three of them one other run, newest run first."""
    live = iter(sorted((one for one in outdated if one.is_live), key=_made_at))
    others = iter(sorted((one for one in outdated if not one.is_live), key=_newest_first))
    ordered: list[OutdatedSummary] = []
    while group := [*islice(live, LIVE_PER_OTHER), *islice(others, 1)]:
        ordered += group
    return ordered


def _made_at(outdated: OutdatedSummary) -> float:
    return -1.0 if outdated.made_at is None else outdated.made_at


def _newest_first(outdated: OutdatedSummary) -> int:
    return -outdated.run_id
