"""Masks and weights beside verl 0.9.1's own code, for all its presets and options; the cases that differ, and why."""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from omegaconf import OmegaConf
from verl.trainer.config import RolloutCorrectionConfig
from verl.trainer.ppo import core_algos
from verl.trainer.ppo import rollout_corr_helper as verl
from verl.workers.config import ActorConfig

from tests.peers.verl.test_signals import of_log_ratios
from trmon_client.core import acceptance, statistics
from trmon_client.core.policies.policy import Policy
from trmon_client.core.policies.presets import KEYS, VERL_PRESETS
from trmon_client.core.policies.token_decision import apply_token_rules

CONFIGS: dict[str, RolloutCorrectionConfig] = {
    name: method()
    for name, method in inspect.getmembers(RolloutCorrectionConfig, inspect.ismethod)
    if not name.startswith("_")
}
RS_MODES = sorted(verl.SUPPORTED_ROLLOUT_RS_OPTIONS)
NOISES = [1e-4, 1e-3, 0.02, 0.3, 2.0]


@dataclass(frozen=True)
class Correction:
    """Which tokens stay, bool [B, T], and their weights, 0 where they do not, [B, T]."""

    mask: np.ndarray[Any, Any]
    weights: np.ndarray[Any, Any]


def tensors(noise: float, *, seed: int = 0) -> dict[str, torch.Tensor]:
    """Return verl's three arguments, float64, with lengths of 1 to 40 tokens; the last sequence has ratios of 1.

    Without that one verl divides by zero where a range keeps no weight.
    """
    generator = torch.Generator().manual_seed(seed)
    trained = -torch.empty((64, 40), dtype=torch.float64).exponential_(generator=generator)
    rollout = (trained + noise * torch.randn(trained.shape, generator=generator)).clamp(max=0)
    rollout[-1] = trained[-1]
    return {
        "old_log_prob": trained,
        "rollout_log_prob": rollout,
        "response_mask": (torch.arange(40) < torch.randint(1, 41, (64, 1), generator=generator)).double(),
    }


def by_verl(given: dict[str, Any], options: Mapping[str, Any]) -> Correction:
    """Return what verl's trainer applies to the loss; in bypass with PPO's clip the weights are not applied."""
    arguments = {key: options[key] for key in options if key in KEYS and key not in ("bypass_mode", "loss_type")}
    proto, mask, _ = verl.compute_rollout_correction_and_rejection_mask(**given, **arguments)
    is_weighted = proto is not None and (not options.get("bypass_mode") or options.get("loss_type") == "reinforce")
    weights = proto.batch["rollout_is_weights"] if is_weighted else torch.ones_like(given["response_mask"])
    return Correction((mask.bool() & (weights > 0)).numpy(), (weights * mask).numpy())


def by_trmon(given: dict[str, Any], policy: Policy, *, is_bypass: bool = False) -> Correction:
    """Return what `decision.token_mask` and `decision.weights` hold in enforce mode, in float32."""
    trained = "logprobs" if is_bypass else "old_logprobs"
    arguments = {
        "rollout_logprobs": given["rollout_log_prob"],
        trained: given["old_log_prob"],
        "mask": given["response_mask"],
    }
    accepted = acceptance.decide(statistics.columns(**arguments), policy).accepted[:, None]
    tokens = apply_token_rules(policy, **arguments)
    return Correction(tokens.mask & accepted, np.where(accepted, tokens.weights, 0))


def assert_equal(found: Correction, expected: Correction) -> None:
    assert found.mask.tolist() == expected.mask.tolist()
    np.testing.assert_allclose(found.weights, expected.weights, rtol=2e-7, atol=1e-30)


def inverted(bounds: str) -> str:
    """Return the bounds on rho that equal verl's bounds on 1/rho."""
    lower, upper = map(float, bounds.split("_"))
    return f"{1 / upper!r}_{1 / lower!r}"


def test_the_presets_are_those_of_verl() -> None:
    assert len(CONFIGS) == 19
    assert VERL_PRESETS.keys() == CONFIGS.keys()
    assert {*RolloutCorrectionConfig()} == {*KEYS, "_target_"}


@pytest.mark.parametrize("name", VERL_PRESETS)
def test_a_preset_equals_the_policy_of_the_whole_configuration(name: str) -> None:
    config = CONFIGS[name]
    policy, named = Policy.parse(config), acceptance.preset(name)
    assert (policy.criteria, policy.tokens) == (named.criteria, named.tokens)
    assert Policy.parse(dict(config)) == policy
    assert Policy.parse(OmegaConf.create(dict(config))) == policy


@pytest.mark.parametrize("name", VERL_PRESETS)
@pytest.mark.parametrize("noise", NOISES)
def test_masks_and_weights_of_every_preset_equal_those_of_verl(name: str, noise: float) -> None:
    """k1's bounds are given to verl inverted: it compares 1/rho, and 0.999_1.001 is not symmetric."""
    options, given = dict(CONFIGS[name]), tensors(noise)
    if options["rollout_rs"] == "seq_mean_k1":
        options["rollout_rs_threshold"] = inverted(options["rollout_rs_threshold"])
    found = by_trmon(given, acceptance.preset(name), is_bypass=options["bypass_mode"])
    assert_equal(found, by_verl(given, options))


@pytest.mark.parametrize("name", [name for name, config in CONFIGS.items() if config.rollout_rs == "seq_mean_k1"])
def test_unchanged_geo_presets_differ_only_within_a_millionth_of_the_bounds(name: str) -> None:
    """verl compares 1/rho: it keeps rho in [1/1.001, 1/0.999], trmon in [0.999, 1.001]."""
    given = tensors(3e-3, seed=1)
    d = (given["old_log_prob"] - given["rollout_log_prob"]) * given["response_mask"]
    edges = torch.tensor([math.log(0.9990003), math.log(0.9990005), math.log(1.0010005), math.log(1.0010013)])
    d[:4] = edges[:, None]
    given["rollout_log_prob"] = given["old_log_prob"] - d - 1e-3
    given["old_log_prob"] = given["rollout_log_prob"] + d
    options, is_bypass = dict(CONFIGS[name]), CONFIGS[name].bypass_mode
    ours = by_trmon(given, acceptance.preset(name), is_bypass=is_bypass).mask.any(axis=1)
    verls = by_verl(given, options).mask.any(axis=1)
    assert (ours[:4].tolist(), verls[:4].tolist()) == ([True, True, False, False], [False, False, True, False])
    assert ours[4:].tolist() == verls[4:].tolist()


@pytest.mark.parametrize("mode", RS_MODES)
@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("is_bypass", [False, True], ids=["decoupled", "bypass"])
def test_every_rejection_mode_keeps_the_tokens_that_verl_keeps(mode: str, noise: float, is_bypass: bool) -> None:
    given = tensors(noise, seed=2)
    for upper in (1.0005, 1.02, 1.7, 30.0):
        options = {"rollout_rs": mode, "rollout_rs_threshold": upper, "bypass_mode": is_bypass}
        found = by_trmon(given, Policy.parse(options), is_bypass=is_bypass)
        assert found.mask.tolist() == by_verl(given, options).mask.tolist()


@pytest.mark.parametrize("level", ["token", "sequence"])
@pytest.mark.parametrize("threshold", [1.001, "2.0", "0.5_5.0", "0.999_1.001"])
@pytest.mark.parametrize("noise", NOISES)
def test_every_weighting_gives_the_weights_of_verl(level: str, threshold: float | str, noise: float) -> None:
    given = tensors(noise, seed=3)
    options = {"rollout_is": level, "rollout_is_threshold": threshold, "rollout_rs": None}
    found, expected = by_trmon(given, Policy.parse(options)), by_verl(given, options)
    # At -20 a sum of log-ratios is clamped by verl: its weight 2e-9 stands for any smaller one.
    tiny = (expected.weights == pytest.approx(math.exp(-20), rel=1e-9)) if level == "sequence" else False
    np.testing.assert_allclose(found.weights, np.where(tiny, found.weights, expected.weights), rtol=2e-7, atol=1e-30)
    assert found.weights[tiny].max(initial=0.0) <= math.exp(-20) * (1 + 1e-6) if np.any(tiny) else True
    assert found.mask.tolist() == expected.mask.tolist()


def test_rejection_and_weights_combine_as_in_verl() -> None:
    options = {
        "rollout_rs": "token_k2, seq_max_k3, seq_mean_k1",
        "rollout_rs_threshold": "0.5, 1.0, 1.05",
        "rollout_is": "token",
        "rollout_is_threshold": 1.3,
    }
    given = tensors(0.2, seed=4)
    found = by_trmon(given, Policy.parse(options))
    assert_equal(found, by_verl(given, options))
    assert 0 < found.mask.sum() < given["response_mask"].sum()


def test_normalised_weights_are_refused_and_are_those_of_verl_after_the_division() -> None:
    given = tensors(0.3)
    options = {"rollout_is": "token", "rollout_is_threshold": 2.0}
    with pytest.raises(acceptance.PolicyError, match="rollout_is_batch_normalize: verl divides"):
        Policy.parse({**options, "rollout_is_batch_normalize": True})
    weights = by_trmon(given, Policy.parse(options)).weights
    expected = by_verl(given, {**options, "rollout_is_batch_normalize": True}).weights
    n_tokens = given["response_mask"].sum().item()
    np.testing.assert_allclose(weights * n_tokens / weights.sum(), expected, rtol=1e-6)


def test_a_threshold_of_none_gives_no_weights_in_verl_and_is_refused_by_trmon() -> None:
    options = {"rollout_is": "token", "rollout_is_threshold": None}
    proto, _, _ = verl.compute_rollout_correction_and_rejection_mask(**tensors(0.3), **options)
    assert proto is None
    with pytest.raises(acceptance.PolicyError, match="rollout_is_threshold is None"):
        Policy.parse(options)


def test_log_ratios_beyond_20_are_clamped_in_the_statistics_of_verl_and_not_in_those_of_trmon() -> None:
    given = of_log_ratios([[25.0, -21.0], [25.0, -25.0]])
    options = {"rollout_rs": "seq_sum_k1", "rollout_rs_threshold": 2.0}
    assert by_verl(given, options).mask.any(axis=1).tolist() == [True, True]
    assert by_trmon(given, Policy.parse(options)).mask.any(axis=1).tolist() == [False, True]


def test_a_sequence_with_an_invalid_log_prob_stays_in_verl_and_is_rejected_by_trmon() -> None:
    given = of_log_ratios([[0.0, 0.0], [0.0, 0.0]])
    given["old_log_prob"][0, 0] = given["rollout_log_prob"][0, 0] = -9999.0
    options = {"rollout_rs": "seq_mean_k3", "rollout_rs_threshold": 0.01}
    assert by_verl(given, options).mask.any(axis=1).tolist() == [True, True]
    assert by_trmon(given, Policy.parse(options)).mask.any(axis=1).tolist() == [False, True]


def test_verl_computes_in_float32_what_trmon_computes_in_float64() -> None:
    """rho - 1 - d of d near 1e-4 is 5e-9, under the rounding of a float32 near 1."""
    d = torch.linspace(1e-4, 2e-4, 100).tolist()
    given = {name: value.float() for name, value in of_log_ratios([d], rollout=-0.3).items()}
    options = {"rollout_rs": "token_k3", "rollout_rs_threshold": 3e-8}
    assert by_trmon(given, Policy.parse(options)).mask.all()
    assert not by_verl(given, options).mask.all()


def test_rejected_tokens_keep_their_weight_beside_the_mask_in_verl_and_have_none_in_trmon() -> None:
    given = of_log_ratios([[3.0, 0.0]])
    options = {"rollout_rs": "token_k2", "rollout_rs_threshold": 0.01, "rollout_is": "token"}
    proto, mask, _ = verl.compute_rollout_correction_and_rejection_mask(**given, **options)
    assert (proto.batch["rollout_is_weights"].tolist(), mask.tolist()) == ([[2.0, 1.0]], [[0.0, 1.0]])
    found = by_trmon(given, Policy.parse(options))
    assert (found.weights.tolist(), found.mask.tolist()) == ([[0.0, 1.0]], [[False, True]])


def weights_by_verl(
    loss_mode: str, given: dict[str, torch.Tensor], *, advantages: torch.Tensor, low: float, high: float
) -> tuple[torch.Tensor, float]:
    """Return the weights of a policy loss of verl, and the share of tokens that it masks or clips.

    The loss is -A w log pi: its gradient by log pi is -A w, and 0 where a token is masked.
    """
    logp = given["old_log_prob"].clone().requires_grad_()
    loss, metrics = core_algos.get_policy_loss_fn(loss_mode)(
        old_log_prob=given["rollout_log_prob"],
        log_prob=logp,
        advantages=advantages,
        response_mask=given["response_mask"],
        loss_agg_mode="token-mean",
        config=ActorConfig(
            strategy="fsdp",
            ppo_micro_batch_size_per_gpu=1,
            rollout_n=1,
            clip_ratio_low=low,
            clip_ratio_high=high,
            clip_ratio_c=20.0,
        ),
    )
    loss.backward()
    assert logp.grad is not None
    return -logp.grad * given["response_mask"].sum() / advantages, metrics["actor/pg_clipfrac"]


def of_policy_loss(name: str, given: dict[str, torch.Tensor], *, advantages: torch.Tensor) -> Correction:
    """Return what trmon's policy of this name decides where verl's loss compares pi with the old policy."""
    anchor = "old_logprobs" if name in ("cispo", "gspo") else "rollout_logprobs"
    arguments = {
        anchor: given["rollout_log_prob"],
        "logprobs": given["old_log_prob"],
        "mask": given["response_mask"],
        "advantages": advantages,
    }
    accepted = acceptance.decide(statistics.columns(**arguments), acceptance.preset(name)).accepted[:, None]
    tokens = apply_token_rules(acceptance.preset(name), **arguments)
    return Correction(tokens.mask & accepted, np.where(accepted, tokens.weights, 0))


LOSSES = {
    "dppo_tv": ("dppo", 0.15, 0.15),
    "dppo_kl": ("dppo_kl", 0.05, 0.05),
    "cispo": ("cispo", 10.0, 0.2),
    "gspo": ("gspo", 3e-4, 4e-4),
}
"""The policy for each loss of verl, and verl's clip_ratio_low and clip_ratio_high."""


@pytest.mark.parametrize("loss_mode", LOSSES)
@pytest.mark.parametrize("noise", NOISES)
def test_the_gradient_of_a_policy_loss_of_verl_is_the_weight_of_trmon(loss_mode: str, noise: float) -> None:
    name, low, high = LOSSES[loss_mode]
    given, random = tensors(noise, seed=5), torch.Generator().manual_seed(6)
    advantages = torch.randn((64, 1), generator=random, dtype=torch.float64).expand(64, 40)
    expected, clipped = weights_by_verl(loss_mode, given, advantages=advantages, low=low, high=high)
    found = of_policy_loss(name, given, advantages=advantages)
    np.testing.assert_allclose(found.weights, expected.numpy(), rtol=1e-6, atol=1e-12)
    if name != "cispo":  # which masks nothing
        masked = 1 - found.mask.sum() / given["response_mask"].sum().item()
        assert masked == pytest.approx(clipped, abs=1e-6)


def test_cispo_is_clamped_below_by_verl_and_not_by_trmon() -> None:
    given, advantages = of_log_ratios([[-1.0, 0.0]]), torch.ones((1, 2), dtype=torch.float64)
    expected, _ = weights_by_verl("cispo", given, advantages=advantages, low=0.2, high=0.2)
    assert expected.tolist() == [pytest.approx([0.8, 1.0])]
    found = of_policy_loss("cispo", given, advantages=advantages)
    assert found.weights.tolist() == [pytest.approx([math.exp(-1), 1.0])]


def test_gspo_clips_by_the_sign_of_each_token_in_verl_and_of_their_mean_in_trmon() -> None:
    given, advantages = of_log_ratios([[0.1, 0.1]]), torch.tensor([[3.0, -1.0]], dtype=torch.float64)
    expected, _ = weights_by_verl("gspo", given, advantages=advantages, low=3e-4, high=4e-4)
    assert expected.tolist() == [pytest.approx([0.0, math.exp(0.1)])]
    assert of_policy_loss("gspo", given, advantages=advantages).weights.tolist() == [[0.0, 0.0]]


def test_gspo_has_no_gradient_beyond_e_to_the_10_in_verl_and_is_clamped_at_e_to_the_20_by_trmon() -> None:
    """verl clamps the log-ratio where the gradient passes, so the token gets none."""
    given, advantages = of_log_ratios([[25.0]]), torch.tensor([[-1.0]], dtype=torch.float64)
    expected, _ = weights_by_verl("gspo", given, advantages=advantages, low=3e-4, high=4e-4)
    assert expected.item() == 0.0
    assert of_policy_loss("gspo", given, advantages=advantages).weights.item() == pytest.approx(math.exp(20))


def test_dppo_without_clip_ratio_c_truncates_at_3_in_verl_and_at_20_in_trmon() -> None:
    """verl's loss falls back to 20, and its ActorConfig, which always sets the field, to 3."""
    assert ActorConfig(strategy="fsdp", ppo_micro_batch_size_per_gpu=1, rollout_n=1).get("clip_ratio_c", 20.0) == 3.0
    logp = np.log([[1e-3]])
    given = {"rollout_logprobs": logp - math.log(25), "logprobs": logp, "mask": logp < 0, "advantages": np.ones(1)}
    assert apply_token_rules(acceptance.preset("dppo"), **given).weights.tolist() == [[20.0]]
