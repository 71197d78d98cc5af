"""The trainer: equal seeds run equal, faults reach the columns that are reported, and evaluations stay clean."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import pytest

from tests.lab.grpo.experiments import MOE, TASK, small
from tests.lab.recording import RecordingMonitor
from trmon.lab.grpo.experiment_config import (
    EngineMismatch,
    ExperimentConfig,
    PpoReference,
    Ramp,
    TrainingFaults,
    WeightFormat,
    constant,
)
from trmon.lab.grpo.grpo_trainer import UpdateOutcome, train_experiment
from trmon.lab.grpo.supervised_start import supervised_start

Trained = tuple[list[UpdateOutcome], RecordingMonitor]


def _train(config: ExperimentConfig) -> Trained:
    monitor = RecordingMonitor()
    return list(train_experiment(config, monitor)), monitor


@pytest.fixture(scope="module")
def usual() -> Trained:
    """What the small experiment without a fault gives."""
    return _train(small())


def _signals(trained: Trained, name: str) -> list[float]:
    return [call.decision.signals[name] for call in trained[1].rollouts()]


def test_equal_configurations_run_equal(usual: Trained) -> None:
    assert _train(small())[0] == usual[0]
    assert [outcome.reward for outcome in _train(small(seed=4))[0]] != [outcome.reward for outcome in usual[0]]


def test_each_update_reports_its_rollout_and_its_last_optimizer_step() -> None:
    outcomes, monitor = _train(small(n_minibatches=2, n_epochs=3))
    assert [(call.step, call.update) for call in monitor.calls] == [
        (step, update) for step in range(4) for update in (None, 5)
    ]
    assert [len(call.inputs["mask"]) for call in monitor.calls[:2]] == [16, 8]
    assert [monitor.scalars[step]["grad_norm"] for step in range(4)] == [outcome.grad_norm for outcome in outcomes]
    assert monitor.calls[0].decision.signals["staleness_kl_k3"] == 0
    assert monitor.calls[1].decision.signals["staleness_kl_k3"] > 0


def test_a_healthy_engine_differs_a_little(usual: Trained) -> None:
    assert all(0 < kl < 1e-3 for kl in _signals(usual, "mismatch_kl_k3"))
    clean = _train(small(engine=EngineMismatch(weight_format=WeightFormat.FLOAT32)))
    assert all(kl < 1e-9 for kl in _signals(clean, "mismatch_kl_k3"))


@pytest.mark.parametrize(
    ("name", "changed"),
    [
        ("mismatch_kl_k3", {"engine": EngineMismatch(weight_format=WeightFormat.INT3)}),
        ("mismatch_kl_k3", {"engine": EngineMismatch(router_noise=constant(3.0))}),
        ("mismatch_kl_k3", {"engine": EngineMismatch(temperature=constant(0.6))}),
        ("version_lag_max", {"engine": EngineMismatch(lag=constant(2.0))}),
        ("saturated_fraction", {"engine": EngineMismatch(padded_share=constant(0.8))}),
        ("reward_mean", {"length_bonus": constant(1.0)}),
    ],
)
def test_each_fault_shows_in_its_signal(name: str, changed: dict[str, Any], usual: Trained) -> None:
    assert _signals(_train(small(**changed)), name)[-1] > 2 * _signals(usual, name)[-1]


def test_faults_of_training_reach_the_lengths_the_rewards_and_the_advantages() -> None:
    def first_inputs(**faults: Ramp) -> dict[str, Any]:
        _, monitor = _train(small(n_updates=1, faults=TrainingFaults(**faults)))
        return monitor.rollouts()[0].inputs

    clean = first_inputs()
    assert clean["mask"].sum(dim=1).max() > 4
    assert first_inputs(token_limit=constant(4.0))["mask"].sum(dim=1).max() == 4
    assert 0 < first_inputs(nan_share=constant(0.5))["rewards"].isnan().sum() < len(clean["rewards"])
    negated = first_inputs(negated_share=constant(1.0))
    assert negated["rewards"].equal(clean["rewards"])
    assert negated["advantages"].equal(-clean["advantages"])


def test_stale_rollouts_are_of_older_versions_of_the_weights() -> None:
    lagging = _train(small(n_updates=6, engine=EngineMismatch(lag=Ramp(0.0, 3.0, first_update=2))))
    assert _signals(lagging, "version_lag_max") == [0, 0, 2, 3, 3, 3]


def test_replayed_routing_brings_the_engines_together() -> None:
    noisy = EngineMismatch(weight_format=WeightFormat.FLOAT32, router_noise=constant(3.0))
    _, plain = _train(small(engine=noisy))
    _, replayed = _train(small(engine=noisy, router_replay=True))
    assert min(call.scalars["router_flip_rate"] for call in plain.rollouts()) > 0.05
    assert [call.scalars["router_flip_rate"] for call in replayed.rollouts()] == [0.0] * 4
    gaps = [call.decision.signals["mismatch_kl_k3"] for monitor in (plain, replayed) for call in monitor.rollouts()[:1]]
    assert gaps[1] < gaps[0]


def test_clean_evaluations_ignore_the_rollout_engine_and_hold_for_ten_updates() -> None:
    frozen = {"learning_rate": constant(0.0), "n_updates": 12}
    clean, _ = _train(small(**frozen))
    broken, _ = _train(
        small(**frozen, engine=EngineMismatch(weight_format=WeightFormat.INT3, temperature=constant(2.0)))
    )
    assert {outcome.evaluated for outcome in broken} == {clean[0].evaluated}
    moving, _ = _train(small(n_updates=21, learning_rate=constant(5e-3)))
    changes = [later.update for earlier, later in pairwise(moving) if later.evaluated != earlier.evaluated]
    assert changes == [10, 20]


def test_the_reference_of_the_ratio_decides_whether_padding_reaches_the_updates() -> None:
    padded = EngineMismatch(padded_share=constant(0.9))
    norms = {
        reference: [
            outcome.grad_norm for outcome in _train(small(ppo_reference=reference, engine=padded, n_updates=2))[0]
        ]
        for reference in PpoReference
    }
    assert norms[PpoReference.OLD][0] != norms[PpoReference.ROLLOUT][0]
    assert all(math.isfinite(norm) for each in norms.values() for norm in each)


def test_an_entropy_coefficient_moves_the_entropy() -> None:
    spread, sharp = (
        _signals(
            _train(small(n_updates=8, learning_rate=constant(5e-3), entropy_coefficient=constant(size))),
            "sampled_entropy",
        )
        for size in (1.0, -1.0)
    )
    assert spread[-1] > sharp[-1]


def test_a_warm_start_reaches_its_share_of_exact_answers_and_is_shared() -> None:
    start = supervised_start(TASK, MOE, experts_per_token=1, seed=0, exact=0.01)
    assert 0.01 <= start.exact < 0.4
    again = supervised_start(TASK, MOE, experts_per_token=1, seed=0, exact=0.01)
    assert again is start
