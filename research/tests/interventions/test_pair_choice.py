"""Pairs: runs that collapsed, and as many that did not, in turn and in an order that a limit does not change."""

from __future__ import annotations

from research.tests.interventions.pairs import plan
from tests.lab.grpo.experiments import small
from trmon_research.interventions.pair_choice import choose_pairs
from trmon_research.sweep.run_file import RunOutcome, RunRecord
from trmon_research.sweep.run_labels import RunLabel


def _record(seed: int, *, onset: int | None) -> RunRecord:
    label = RunLabel(onset=onset, sign=None, n_updates=400)
    outcome = RunOutcome(label=label, first_reward=0.5, peak_reward=0.8, last_reward=0.8, seconds=1.0)
    return RunRecord(format=2, config=small(seed=seed), outcome=outcome, alerts=())


RECORDS = [_record(seed, onset=200 if seed % 3 == 0 else None) for seed in range(12)]
SETUP = plan().setup


def test_as_many_of_each_kind_in_turn() -> None:
    chosen = choose_pairs(RECORDS, SETUP)
    assert [pair.collapses for pair in chosen] == [True, False] * 4
    assert {pair.config.seed for pair in chosen if pair.collapses} == {0, 3, 6, 9}


def test_a_limit_takes_the_first_of_them() -> None:
    assert choose_pairs(RECORDS[::-1], SETUP, limit=2) == choose_pairs(RECORDS, SETUP)[:4]


def test_runs_that_collapse_are_all_taken_where_others_lack() -> None:
    chosen = choose_pairs(RECORDS[:4], SETUP)
    assert [pair.collapses for pair in chosen] == [True, False, True, False]
    assert choose_pairs(RECORDS[:1], SETUP) == [plan(RECORDS[0].config, collapses=True)]
