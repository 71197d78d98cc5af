"""Tests stored summaries: which of them are outdated, and which count as missing."""

from __future__ import annotations

import math

import pytest
from sqlalchemy import update

from tests.store.builders import NOW, append, batch, batch_key, commit, count, execute, start_intake
from trmon.domain.access import EVERYTHING
from trmon.domain.collapse_risk.risk_reading import RiskDriver, RiskReading
from trmon.domain.health.run_summary import OutdatedSummary, RunSummary, Sparkline, SummaryBasis
from trmon.domain.identity import RunKey
from trmon.domain.ownership import slot_of
from trmon.domain.pipeline.run_update import Frontier
from trmon.domain.runs.run import RunState
from trmon.store import Store
from trmon.store.rows.runs import SUMMARY_VERSION
from trmon.store.schema import tables


def a_run(store: Store, name: str = "grpo", *, step: int = 0) -> tuple[int, int]:
    """Store a run with one closed step; return its id and its attempt's."""
    [receipt] = append(store, start_intake(run=name))
    fold(store, receipt.run_id, receipt.attempt_id, step=step)
    return receipt.run_id, receipt.attempt_id


def fold(store: Store, run_id: int, attempt_id: int, *, step: int, report_id: int = 1, ordinal: int = 1) -> None:
    row = batch(batch_key(attempt_id, step), run_id=run_id, ordinal=ordinal)
    frontier = Frontier(report_id=report_id)
    commit(store, run_id, batches=(row,), last_step=step, attempt_id=attempt_id, frontier=frontier)


RISK = RiskReading(probability=0.4, drivers=(RiskDriver(input="grad_norm", log_odds=1.5),), missing=("entropy",))


def made(store: Store, run_id: int, *, risk: RiskReading | None = None) -> RunSummary:
    """Return a summary of the run as it is now, with every kind of number."""
    return RunSummary(
        run_id=run_id,
        basis=store.summaries.bases([run_id])[run_id].now,
        made_at=NOW,
        reward=Sparkline(first_step=0, last_step=1, values=(None, 0.5)),
        kl=Sparkline(first_step=0, last_step=1, values=(0.1, None)),
        mask_rate=math.inf,
        expected_step_seconds=None,
        collapse_risk=risk,
    )


def outdated(store: Store) -> list[int]:
    return [one.run_id for one in store.summaries.outdated()]


@pytest.mark.parametrize("risk", [None, RISK], ids=["without a risk", "with a risk"])
def test_a_summary_is_read_as_it_was_written(store: Store, risk: RiskReading | None) -> None:
    run_id, attempt_id = a_run(store)
    summary = made(store, run_id, risk=risk)
    assert summary.basis == SummaryBasis(attempt_id=attempt_id, step=0, report_id=1, notice_id=0)
    store.summaries.write([summary]).result()
    assert store.summaries.of([run_id])[run_id] == summary
    bases = store.summaries.bases([run_id])[run_id]
    assert bases.stored == bases.now == summary.basis


def test_a_run_without_a_step_has_nothing_to_summarize(store: Store, run_id: int) -> None:
    assert (outdated(store), store.summaries.bases([run_id])) == ([], {})


@pytest.mark.parametrize(
    ("change", "step", "report_id"),
    [("a new step", 1, 2), ("late sequences of its step", 0, 2), ("another attempt that goes back", 0, 1)],
)
def test_a_summary_is_outdated_once_a_row_changes(store: Store, change: str, step: int, report_id: int) -> None:
    run_id, attempt_id = a_run(store)
    found = store.summaries.outdated()
    assert found == [
        OutdatedSummary(run_id=run_id, basis=store.summaries.bases([run_id])[run_id].now, is_live=True, made_at=None)
    ]
    store.summaries.write([made(store, run_id)]).result()
    assert outdated(store) == []
    if change.startswith("another attempt"):
        [again] = append(store, start_intake(attempt="b", launch="launch-2"))
        attempt_id = again.attempt_id
    fold(store, run_id, attempt_id, step=step, report_id=report_id, ordinal=2)
    [one] = store.summaries.outdated()
    assert (one.run_id, one.made_at) == (run_id, NOW)
    bases = store.summaries.bases([run_id])[run_id]
    assert bases.stored != bases.now
    store.summaries.write([made(store, run_id)]).result()
    assert outdated(store) == []


def test_a_run_that_ended_is_not_live(store: Store) -> None:
    run_id, _ = a_run(store)
    commit(store, run_id, state=RunState.FINISHED, frontier=Frontier(report_id=1, notice_id=1))
    assert [one.is_live for one in store.summaries.outdated()] == [False]


@pytest.mark.parametrize("version", [SUMMARY_VERSION - 1, SUMMARY_VERSION + 1])
def test_a_summary_of_another_version_counts_as_missing_and_is_replaced(store: Store, version: int) -> None:
    run_id, _ = a_run(store)
    store.summaries.write([made(store, run_id)]).result()
    execute(store, update(tables.run_summary).values(version=version, document=b"something else"))
    assert (outdated(store), store.summaries.of([run_id])) == ([run_id], {})
    assert store.summaries.bases([run_id])[run_id].stored is None
    store.summaries.write([made(store, run_id)]).result()
    assert (outdated(store), [*store.summaries.of([run_id])]) == ([], [run_id])


def test_a_damaged_document_is_left_out(store: Store) -> None:
    (run_id, _), (other_id, _) = a_run(store), a_run(store, "other")
    store.summaries.write([made(store, run_id), made(store, other_id)]).result()
    execute(store, update(tables.run_summary).where(tables.run_summary.c.run_id == run_id).values(document=b"\xc1"))
    assert [*store.summaries.of([run_id, other_id])] == [other_id]


def test_a_deleted_run_keeps_no_other_from_being_stored(store: Store) -> None:
    (run_id, _), (other_id, _) = a_run(store), a_run(store, "other")
    summaries = [made(store, run_id), made(store, other_id)]
    store.runs.delete(RunKey("math", "grpo"), access=EVERYTHING, now=NOW)
    store.summaries.write(summaries).result()
    assert [*store.summaries.of([run_id, other_id])] == [other_id]
    store.runs.delete(RunKey("math", "other"), access=EVERYTHING, now=NOW)
    assert count(store, tables.run_summary) == 0


def test_a_worker_is_given_the_runs_of_its_slots(store: Store) -> None:
    (run_id, _), (other_id, _) = a_run(store), a_run(store, "other")
    assert [one.run_id for one in store.summaries.outdated([slot_of(other_id)])] == [other_id]
    assert store.summaries.outdated([]) == []
    assert outdated(store) == [run_id, other_id]
