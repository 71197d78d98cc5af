"""Stored summaries of runs, each with what it was made of, so that a reader knows whether it is current."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Select, and_, func, or_, select

from trmon.domain.health.run_summary import OutdatedSummary, RunSummary, SummaryBasis
from trmon.domain.ownership import SLOTS
from trmon.domain.runs.run import RunState
from trmon.store.database.upsert import upsert
from trmon.store.rows.runs import SUMMARY_BASIS, SUMMARY_VERSION, summary_from_row, summary_to_row
from trmon.store.schema import tables
from trmon.store.writing.repository import Repository
from trmon.store.writing.transaction import Transaction

PAGE = 500

_run, _state, _summary = tables.run.c, tables.run_state.c, tables.run_summary.c
_CURRENT = {
    "attempt_id": func.coalesce(_run.attempt_id, 0),
    "step": _run.last_step,
    "report_id": func.coalesce(_state.report_id, 0),
    "notice_id": func.coalesce(_state.notice_id, 0),
}
"""The columns of the basis that a run has now."""
_IS_OF_THIS_VERSION = and_(_summary.run_id == _run.id, _summary.version == SUMMARY_VERSION)


@dataclass(frozen=True, slots=True, kw_only=True)
class SummaryBases:
    """The inputs of a run's summary now, and those of its stored one; None if there is none."""

    now: SummaryBasis
    stored: SummaryBasis | None


class Summaries(Repository):
    """Reads and writes the summaries of runs; those of another version of trmon count as missing."""

    def outdated(self, slots: Collection[int] | None = None) -> list[OutdatedSummary]:
        """Return the runs, of some slots or all, with a step that no stored summary covers; the oldest runs first."""
        is_outdated = [_summary.run_id.is_(None), *(_summary[name] != now for name, now in _CURRENT.items())]
        found = _bases_query(_run.state, _summary.made_at).where(_run.last_step.is_not(None), or_(*is_outdated))
        if slots is not None:
            found = found.where((_run.id % SLOTS).in_(slots))
        live = RunState.RUNNING.value
        return [
            OutdatedSummary(
                run_id=row.id, basis=SUMMARY_BASIS.from_row(row), is_live=row.state == live, made_at=row.made_at
            )
            for row in self._rows(found.order_by(_run.id))
        ]

    def bases(self, run_ids: Sequence[int]) -> Mapping[int, SummaryBases]:
        """Return what summaries of runs are made of, by run; a run without a step is left out."""
        stored = [_summary[name].label(f"stored_{name}") for name in _CURRENT]
        found: dict[int, SummaryBases] = {}
        for row in self._pages(_bases_query(*stored).where(_run.last_step.is_not(None)), _run.id, run_ids):
            was = None
            if row.stored_step is not None:
                was = SummaryBasis(**{name: getattr(row, f"stored_{name}") for name in _CURRENT})
            found[row.id] = SummaryBases(now=SUMMARY_BASIS.from_row(row), stored=was)
        return found

    def of(self, run_ids: Sequence[int]) -> Mapping[int, RunSummary]:
        """Return the stored summaries of runs, by run; a damaged one is left out."""
        found = select(tables.run_summary).where(_summary.version == SUMMARY_VERSION)
        summaries = map(summary_from_row, self._pages(found, _summary.run_id, run_ids))
        return {summary.run_id: summary for summary in summaries if summary is not None}

    def write(self, summaries: Sequence[RunSummary]) -> Future[None]:
        """Store summaries in place of former ones; that of a run which was deleted meanwhile is left out."""
        by_run = {summary.run_id: summary for summary in summaries}

        def change(transaction: Transaction) -> None:
            connection = transaction.connection
            existing = connection.scalars(select(_run.id).where(_run.id.in_(list(by_run)))).all()
            rows = [summary_to_row(by_run[run_id]) for run_id in existing]
            upsert(connection, tables.run_summary, key=("run_id",), rows=rows)

        return self._writer.submit(change)

    def _pages(self, query: Select[Any], column: Any, run_ids: Sequence[int]) -> list[Any]:
        """Return the rows of some runs; a statement has a limited number of parameters."""
        with self._reader.connect() as connection:
            pages = (run_ids[first : first + PAGE] for first in range(0, len(run_ids), PAGE))
            return [row for page in pages for row in connection.execute(query.where(column.in_(list(page))))]


def _bases_query(*columns: Any) -> Select[Any]:
    """Return a query for runs, what summaries of them are made of now, and more columns."""
    current = [value.label(name) for name, value in _CURRENT.items()]
    joined = tables.run.outerjoin(tables.run_state).outerjoin(tables.run_summary, _IS_OF_THIS_VERSION)
    return select(_run.id, *current, *columns).select_from(joined)
