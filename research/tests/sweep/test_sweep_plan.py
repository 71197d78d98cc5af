"""The plan of a sweep: repeatable, extendable, and every mechanism in it."""

from __future__ import annotations

from collections import Counter

import msgspec
import pytest

from tests.lab.grpo.experiments import small
from trmon.lab.grpo.experiment_config import EngineMismatch, ExperimentConfig, Ramp, constant
from trmon_research.sweep.sweep_plan import (
    FIRST_ROUNDS,
    LATER_SHARES,
    MECHANISMS,
    SHARES,
    configuration_hash,
    configurations_of,
    first_change,
    plan_sweep,
)
from trmon_research.testbed import StudyTrainer


def test_a_longer_plan_begins_with_the_shorter_one() -> None:
    assert plan_sweep(60, seed=0, n_updates=800)[:20] == plan_sweep(20, seed=0, n_updates=800)
    assert plan_sweep(20, seed=0, n_updates=800) != plan_sweep(20, seed=1, n_updates=800)


def test_a_round_has_every_mechanism_and_a_plan_every_task_and_architecture() -> None:
    plan = plan_sweep(140, seed=0, n_updates=800)
    assert Counter(config.mechanism for config in plan[: sum(SHARES.values())]) == SHARES
    n_first, n_later = FIRST_ROUNDS * sum(SHARES.values()), sum(LATER_SHARES.values())
    later = plan_sweep(n_first + n_later, seed=0, n_updates=800)[n_first:]
    assert Counter(config.mechanism for config in later) == LATER_SHARES
    assert {*SHARES, *LATER_SHARES} == set(MECHANISMS)
    assert {config.task for config in plan} == set(StudyTrainer.tasks)
    assert {config.architecture for config in plan} == set(StudyTrainer.architectures)
    assert len({config.run_name for config in plan}) == 140


def test_seeds_repeat_a_configuration() -> None:
    first, second = plan_sweep(1, seed=0, n_updates=800, n_seeds=2)
    assert second.seed == first.seed + 1
    assert configuration_hash(first) == configuration_hash(second)
    assert first.content_hash != second.content_hash


def test_configurations_of_a_mechanism_are_those_of_the_plan() -> None:
    plan = plan_sweep(330, seed=0, n_updates=800)
    for mechanism in MECHANISMS:
        expected = [config for config in plan if config.mechanism == mechanism]
        assert configurations_of(mechanism, seed=0, n_updates=800, n=len(expected)) == expected


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_mechanism_never_runs_out_of_configurations(mechanism: str) -> None:
    assert len({config.content_hash for config in configurations_of(mechanism, seed=0, n_updates=800, n=60)}) == 60


def test_a_configuration_has_the_same_name_once_it_was_stored() -> None:
    for config in plan_sweep(140, seed=0, n_updates=800):
        stored = msgspec.json.decode(msgspec.json.encode(config), type=ExperimentConfig)
        assert (stored, stored.run_name) == (config, config.run_name)


def test_the_first_change_is_that_of_the_earliest_ramp_or_precision() -> None:
    assert first_change(small(engine=EngineMismatch(lag=constant(3.0)))) == 0
    later = Ramp(0.0, 2.0, first_update=90, n_updates=50)
    assert first_change(small(length_bonus=later, engine=EngineMismatch(lag=later))) == 90
    assert first_change(small(length_bonus=later, engine=EngineMismatch(first_update=70))) == 70
