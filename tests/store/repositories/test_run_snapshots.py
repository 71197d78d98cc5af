"""Tests what is read of runs in bulk: the judgement and the summary that a worker stored with its rows."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import replace

import pytest

from tests.domain.findings.judgements import KL_OUTSIDE, found, judged
from tests.fixtures.views import view_of
from tests.store.builders import NOW, append, begin, commit, report_intake, scalars_intake
from trmon.domain.collapse_risk.risk_reading import RiskDriver, RiskReading
from trmon.domain.findings.judge import Place
from trmon.domain.health.judgement import Backlog
from trmon.domain.health.run_summary import RunSummary, Sparkline
from trmon.domain.pipeline.run_update import Frontier, Outlook
from trmon.store import Store

ILL = judged(
    found("engine_mismatch", beyond=Place(1, 25)),
    found("reward_decline", since=30),
    over=(found("entropy_explosion", since=3, ended=Place(1, 15)),),
    outside=(KL_OUTSIDE,),
    notes=("half of the groups solve nothing",),
)


RISK = RiskReading(probability=0.4, drivers=(RiskDriver(input="grad_norm", log_odds=1.5),), missing=("entropy",))
LINE = Sparkline(first_step=0, last_step=1, values=(None, 0.5))
OUTLOOK = Outlook(
    judgement=ILL,
    summary=RunSummary(reward=LINE, kl=LINE, mask_rate=0.25, collapse_risk=RISK),
    expected_step_seconds=20.0,
)


def test_an_outlook_is_read_as_it_was_written(store: Store) -> None:
    ill, new, other = begin(store, "math/ill", "math/new", "math/other")
    fields = {one.name: getattr(OUTLOOK, one.name) for one in dataclasses.fields(OUTLOOK)}
    commit(store, ill, outlook=replace(view_of(ill), **fields).document())
    commit(store, new, outlook=view_of(new, expected_step_seconds=None).document())
    commit(store, other, outlook={"judgement": None})  # as an older version wrote it
    found = store.run_snapshots.outlooks([ill, new, other, 77])
    assert [found[run_id] for run_id in (ill, new, other, 77)] == [OUTLOOK, *[Outlook()] * 3]
    [view] = store.run_snapshots.of([ill], now=1.0)
    assert (view.judgement, view.summary) == (ILL, OUTLOOK.summary)


BACKLOGS: dict[str, tuple[Sequence[tuple[int, int]], int, float | None]] = {
    "no report": ([], 0, None),
    "an open batch waits for its trainer": ([(5, 0), (5, 1)], 0, None),
    "the step after the open one waits": ([(5, 0), (5, 1), (6, 0), (6, 1), (7, 0)], 0, 2.0),
    "what was processed does not wait": ([(5, 0), (6, 0), (7, 0)], 2, None),
    "a late report of an open batch does not wait": ([(6, 0), (5, 1)], 0, None),
}


@pytest.mark.parametrize("case", BACKLOGS)
def test_reports_after_those_of_the_open_batch_wait(store: Store, run_id: int, case: str) -> None:
    places, n_read, waits = BACKLOGS[case]
    ids = [0]
    for second, (step, rank) in enumerate(places):
        [written] = append(store, report_intake(step=step, rank=rank, world_size=2), now=NOW + second)
        ids.append(store.reports.unread_of(run_id, Frontier(), limit=100).reports[-1].id)
        assert written.run_id == run_id
    notice_id = store.reports.unread_of(run_id, Frontier(), limit=100).notices[-1].id
    commit(store, run_id, frontier=Frontier(report_id=ids[n_read], notice_id=notice_id))
    waiting = {} if waits is None else {run_id: Backlog(newest_step=places[-1][0], waiting_since=NOW + waits)}
    assert store.run_snapshots.backlogs([run_id]) == waiting


def test_scalars_that_no_pass_has_read_wait(store: Store, run_id: int) -> None:
    notice_id = store.reports.unread_of(run_id, Frontier(), limit=100).notices[-1].id
    commit(store, run_id, frontier=Frontier(notice_id=notice_id))
    append(store, scalars_intake(3), now=NOW + 7)
    assert store.run_snapshots.backlogs([run_id]) == {run_id: Backlog(newest_step=None, waiting_since=NOW + 7)}
