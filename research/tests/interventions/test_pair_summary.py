"""The summary: what an arm saved of what others lost, and what it cost on healthy runs."""

from __future__ import annotations

from research.tests.interventions.pairs import arm, record
from trmon_research.interventions.pair_summary import SavedRuns, arms_table, summarise, trigger_line

RECORDS = [
    record(arm("untouched", onset=9), arm("placebo", onset=9), arm("mask", mask_rate=0.2), seed=1),
    record(arm("untouched", onset=9), arm("placebo"), arm("mask", onset=9), seed=2),
    record(arm("untouched"), arm("placebo"), arm("mask", end_reward=0.5), seed=3),
    record(seed=4),
    record(arm("untouched"), arm("placebo", end_reward=0.84), arm("mask", end_reward=0.6), collapses=False, seed=5),
]


def test_it_counts_what_each_arm_saved_of_what_others_lost() -> None:
    untouched, placebo, mask = summarise(RECORDS)
    assert [each.arm for each in (untouched, placebo, mask)] == ["untouched", "placebo", "mask"]
    assert [each.triggered for each in (untouched, placebo, mask)] == [3, 3, 3]
    assert [each.lost for each in (untouched, placebo, mask)] == [2, 1, 2]
    assert placebo.saved_of_untouched == SavedRuns(saved=1, of=2)
    assert mask.saved_of_untouched == SavedRuns(saved=1, of=2)
    assert mask.saved_of_placebo == SavedRuns(saved=1, of=1)
    assert mask.mask_rate == 0.05


def test_a_run_that_ends_far_below_its_peak_is_lost_too() -> None:
    pair = record(arm("untouched", end_reward=0.57), arm("placebo", end_reward=0.55))
    assert [pair.is_lost(each) for each in pair.arms] == [False, True]


def test_its_cost_is_measured_against_the_untouched_run() -> None:
    _, placebo, mask = summarise(RECORDS)
    assert [round(ratio, 3) for ratio in placebo.healthy_rewards] == [1.05]
    assert [round(ratio, 3) for ratio in mask.healthy_rewards] == [0.75]


def test_it_is_printed_as_a_table_with_the_trigger_before_it() -> None:
    cells = [list(column.cells) for column in arms_table(summarise(RECORDS)).columns]
    assert cells[0] == ["untouched", "placebo", "mask"]
    assert cells[3] == ["0 of 2", "1 of 2", "1 of 2"]
    assert cells[8] == ["+0.0%", "+5.0%", "-25.0%"]
    assert trigger_line(RECORDS).startswith("The trigger fired in 3 of 4 runs that collapse, and in 0 of 1 others")
    assert summarise([]) == []
