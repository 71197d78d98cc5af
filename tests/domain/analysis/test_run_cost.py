"""What a run's illness cost."""

from __future__ import annotations

import math
from typing import Any

import pytest

from trmon.domain.analysis.logged_run import LoggedRun, read_logged_run, run_cost


def run(**columns: list[Any]) -> LoggedRun:
    rows = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
    return read_logged_run([{"step": step, "reward": 0.5} | row for step, row in enumerate(rows)], source="log.jsonl")


def test_rollouts_without_a_difference_of_rewards_taught_nothing() -> None:
    cost = run_cost(run(frac_reward_zero_std=[0.5, 1.0, 0.75, 0.75], step_time=[900.0] * 4), broke_at=2, gpus=8)
    assert cost.wasted_rollouts == 0.75
    assert cost.gpu_hours == pytest.approx(8.0)
    assert cost.wasted_gpu_hours == pytest.approx(6.0)
    assert cost.ill_gpu_hours == pytest.approx(4.0)
    assert cost.timed_steps == 1.0


def test_hours_are_not_known_without_gpus_or_durations() -> None:
    without_gpus = run_cost(run(frac_reward_zero_std=[0.5], step_time=[900.0]), broke_at=0, gpus=None)
    without_times = run_cost(run(frac_reward_zero_std=[0.5]), broke_at=None, gpus=8)
    for cost in (without_gpus, without_times):
        assert cost.wasted_rollouts == 0.5
        assert math.isnan(cost.gpu_hours)
        assert math.isnan(cost.wasted_gpu_hours)
        assert math.isnan(cost.ill_gpu_hours)
    assert (without_gpus.timed_steps, without_times.timed_steps) == (1.0, 0.0)


def test_waste_is_not_known_without_groups() -> None:
    cost = run_cost(run(entropy=[0.5, 0.4]), broke_at=None, gpus=1)
    assert math.isnan(cost.wasted_rollouts)
