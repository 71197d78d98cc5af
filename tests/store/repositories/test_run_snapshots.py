"""Tests what is read of runs in bulk: the judgement that a worker stored with its rows."""

from __future__ import annotations

from dataclasses import replace

from tests.domain.findings.judgements import KL_OUTSIDE, found, judged
from tests.fixtures.views import view_of
from tests.store.builders import append, commit, start_intake
from trmon.domain.findings.judge import Place
from trmon.store import Store

ILL = judged(
    found("engine_mismatch", beyond=Place(1, 25)),
    found("reward_decline", since=30),
    over=(found("entropy_explosion", since=3, ended=Place(1, 15)),),
    outside=(KL_OUTSIDE,),
    notes=("half of the groups solve nothing",),
)


def test_a_judgement_is_read_as_it_was_written(store: Store) -> None:
    [ill, new] = [append(store, start_intake(run=name))[0].run_id for name in ("ill", "new")]
    commit(store, ill, outlook=replace(view_of(ill), judgement=ILL).outlook())
    commit(store, new, outlook=view_of(new).outlook())
    assert store.run_snapshots.judgements([ill, new, 77]) == {ill: ILL}
    [view] = store.run_snapshots.of([ill], now=1.0)
    assert view.judgement == ILL
