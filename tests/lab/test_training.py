"""Training: what a run reports to its monitor, and how it applies the decision."""

from __future__ import annotations

import math
from dataclasses import replace
from statistics import fmean

import pytest
import torch

from tests.lab.recording import RecordingMonitor
from trmon.domain.analysis.collapse import find_collapse
from trmon.lab.testbed.config import LabConfig
from trmon.lab.testbed.injection import Injection
from trmon.lab.testbed.training import StepResult, prepare_training, run_training
from trmon.lab.testbed.warmstart import TARGET_EXACT
from trmon_client.core import acceptance

SHORT = replace(LabConfig.healthy(0), n_steps=6)


def _short(injection: Injection) -> LabConfig:
    """Two healthy steps, then two steps to full severity."""
    return replace(LabConfig.injected(injection, 0), n_steps=6, onset_step=2, ramp_steps=2)


def _run(config: LabConfig, monitor: RecordingMonitor | None = None) -> tuple[list[StepResult], RecordingMonitor]:
    monitor = monitor or RecordingMonitor()
    return list(run_training(config, monitor)), monitor


def _signals(monitor: RecordingMonitor, name: str) -> list[float]:
    return [call.decision.signals[name] for call in monitor.rollouts()]


def test_a_run_starts_from_a_policy_that_can_learn_from_its_reward() -> None:
    start = prepare_training(SHORT)
    assert TARGET_EXACT <= start.exact < 0.6
    assert prepare_training(SHORT) is start


def test_each_step_reports_its_rollout_then_each_update() -> None:
    results, monitor = _run(SHORT)
    assert [(call.step, call.update) for call in monitor.calls] == [
        (step, update) for step in range(6) for update in (None, 0, 1, 2, 3)
    ]
    assert {call.chunks for call in monitor.calls} == {1}
    assert [result.step for result in results] == list(range(6))
    assert [len(call.inputs["mask"]) for call in monitor.calls[:5]] == [96, 24, 24, 24, 24]


def test_the_scalars_of_a_step_are_what_happened_in_it() -> None:
    results, monitor = _run(SHORT)
    for call, result in zip(monitor.rollouts(), results, strict=True):
        assert call.scalars == {"lr": 5e-4, "exact": result.exact, "router_flip_rate": result.router_flip_rate}
        assert monitor.scalars[result.step] == {"grad_norm": result.grad_norm}
        assert call.decision.signals["reward_mean"] == pytest.approx(result.reward)


def test_a_healthy_engine_differs_a_little_and_updates_grow_stale() -> None:
    _, monitor = _run(SHORT)
    assert all(0 < kl < 1e-3 for kl in _signals(monitor, "mismatch_kl_k3"))
    assert all(kl == 0 for kl in _signals(monitor, "staleness_kl_k3"))
    last = [call.decision.signals["staleness_kl_k3"] for call in monitor.calls if call.update == 3]
    assert all(kl > 1e-4 for kl in last)


def test_equal_configurations_run_equal() -> None:
    outcomes = [[(r.reward, r.grad_norm) for r in _run(_short(Injection.ROUTER))[0]] for _ in range(2)]
    assert outcomes[0] == outcomes[1]


def test_a_run_equals_the_healthy_one_until_its_onset() -> None:
    healthy, _ = _run(SHORT)
    injected, _ = _run(_short(Injection.QUANTISE))
    assert [r.reward for r in injected[:2]] == [r.reward for r in healthy[:2]]
    assert injected[3].reward != healthy[3].reward


def test_stale_rollouts_report_their_version_lag() -> None:
    config = replace(_short(Injection.STALE), n_steps=8, ramp_steps=16)
    results, monitor = _run(config)
    assert [result.version_lag for result in results] == [0, 0, 1, 2, 3, 4, 5, 6]
    assert _signals(monitor, "version_lag_max") == [0, 0, 1, 2, 3, 4, 5, 6]
    assert _signals(monitor, "mismatch_kl_k3")[-1] > 100 * _signals(monitor, "mismatch_kl_k3")[1]


def test_rollouts_are_never_staler_than_the_run_is_old() -> None:
    results, _ = _run(replace(_short(Injection.STALE), onset_step=0, ramp_steps=1, n_steps=3))
    assert [result.version_lag for result in results] == [0, 1, 2]


def test_noisy_routing_flips_experts() -> None:
    results, _ = _run(_short(Injection.ROUTER))
    assert max(result.router_flip_rate for result in results[:2]) < 0.01
    assert min(result.router_flip_rate for result in results[3:]) > 0.05


def test_padded_logprobs_look_saturated() -> None:
    _, monitor = _run(_short(Injection.PAD))
    fractions = _signals(monitor, "saturated_fraction")
    assert max(fractions[:2]) == 0
    assert min(fractions[3:]) > 0.1


def test_a_nucleus_shifts_the_mean_ratio() -> None:
    _, monitor = _run(_short(Injection.SUPPORT))
    means = _signals(monitor, "mismatch_ratio_mean")
    assert means[:2] == pytest.approx([1, 1], abs=0.005)
    assert max(means[3:]) < 0.98


def test_a_large_learning_rate_is_reported_and_moves_the_learner_further() -> None:
    healthy, large = _run(SHORT)[1], _run(_short(Injection.LR))[1]
    assert [call.scalars["lr"] for call in large.rollouts()] == pytest.approx([5e-4, 5e-4, 2.25e-3, 4e-3, 4e-3, 4e-3])
    moved = [
        max(call.decision.signals["staleness_kl_k2"] for call in monitor.calls if call.step >= 3 and call.update == 3)
        for monitor in (healthy, large)
    ]
    assert moved[1] > 2 * moved[0]


def test_a_cool_rollout_is_scored_at_temperature_one() -> None:
    _, monitor = _run(_short(Injection.TEMPERATURE))
    slopes = _signals(monitor, "mismatch_temperature_near")
    assert slopes[:2] == pytest.approx([1, 1], abs=0.01)
    assert max(slopes[3:]) < 0.95


def test_negated_rewards_reach_the_learner_while_the_engines_agree() -> None:
    _, monitor = _run(_short(Injection.REWARD))
    agreement = [float((call.inputs["advantages"] * call.inputs["rewards"]).sum()) for call in monitor.rollouts()]
    assert min(agreement[:2]) > 0
    assert max(agreement[3:]) < 0
    assert max(_signals(monitor, "mismatch_kl_k3")) < 1e-3


def test_updates_without_a_finite_gradient_are_left_out() -> None:
    results, monitor = _run(_short(Injection.NAN))
    rewards = [call.inputs["rewards"] for call in monitor.rollouts()]
    assert not any(torch.isnan(step).any() for step in rewards[:2])
    assert torch.isnan(rewards[4]).any()
    assert math.isnan(results[4].grad_norm)
    assert not any(torch.isnan(call.inputs["logprobs"]).any() for call in monitor.calls)


def test_an_entropy_bonus_flattens_the_policy() -> None:
    configs = (replace(config, n_steps=16) for config in (SHORT, _short(Injection.ENTROPY)))
    steady, flattened = (_signals(_run(config)[1], "sampled_entropy") for config in configs)
    assert flattened[:2] == steady[:2]
    assert fmean(flattened[8:]) > fmean(steady[8:]) + 0.03


def test_a_limit_of_tokens_cuts_responses_and_their_rewards() -> None:
    results, monitor = _run(_short(Injection.LENGTH))
    assert min(_signals(monitor, "response_length_max")[:2]) > 12
    assert _signals(monitor, "response_length_max")[3:] == [4, 4, 4]
    assert _signals(monitor, "length_limit_share")[3:] == [1, 1, 1]
    assert max(result.reward for result in results[3:]) < 0.4


def test_enforced_decisions_hold_the_learner() -> None:
    reject_all = acceptance.Policy.parse(
        {"name": "none", "criteria": [{"statistic": "max_abs_d", "pair": "primary", "upper": -1.0}]}
    )
    enforced, _ = _run(SHORT, RecordingMonitor(policy=reject_all, is_enforced=True))
    observed, _ = _run(SHORT, RecordingMonitor(policy=reject_all))
    assert [result.grad_norm for result in enforced] == [0.0] * 6
    assert all(result.grad_norm > 0 for result in observed)


def test_threads_are_the_callers_when_none_are_configured() -> None:
    before = torch.get_num_threads()
    prepare_training(replace(SHORT, n_threads=None))
    assert torch.get_num_threads() == before


@pytest.mark.timeout(400)  # two minutes of training on a busy core
def test_a_stale_run_shows_its_drift_before_its_reward_collapses() -> None:
    config = LabConfig.injected(Injection.STALE, 5)
    results, monitor = _run(config)
    onset = find_collapse([r.reward for r in results], grad_norms=[r.grad_norm for r in results])
    pearson = _signals(monitor, "mismatch_prob_pearson")
    first_drift = next(step for step in range(len(pearson)) if max(pearson[step : step + 3]) < 0.95)
    assert onset is not None
    assert config.onset_step <= first_drift <= onset.step - 10
