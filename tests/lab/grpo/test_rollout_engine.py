"""The rollout engine: without a mismatch it agrees with the training engine; each mismatch moves what it says."""

from __future__ import annotations

import pytest
import torch

from tests.lab.grpo.experiments import TASK, engine, policy, prompts
from trmon.lab.grpo.experiment_config import EngineMismatch, WeightFormat, constant
from trmon.lab.grpo.mismatched_engine import CLEAN, SampledResponses, rounded_weights
from trmon.lab.grpo.tasks import EOS
from trmon.lab.grpo.token_policy import Architecture


def _sampled(
    mismatch: EngineMismatch = CLEAN, *, architecture: Architecture = Architecture.MOE, k: int = 1, n: int = 32
) -> tuple[SampledResponses, torch.Tensor]:
    """Return responses, and d = log pi_old - log mu of their tokens, 0 where none counts."""
    learner, rollout = policy(architecture, k=k), engine(architecture, k=k)
    rollout.load(learner.copied_weights(), version=7, weight_format=mismatch.weight_format)
    sampled = rollout.sample(prompts(n), copies=4, mismatch=mismatch, update=0)
    with torch.no_grad():
        scored = learner.score(sampled.prompts.tokens, sampled.tokens)
    return sampled, torch.where(sampled.mask, scored.logprobs - sampled.logprobs, 0.0)


def _mean_gap(mismatch: EngineMismatch) -> float:
    sampled, d = _sampled(mismatch)
    return (d.abs().sum() / sampled.mask.sum()).item()


@pytest.mark.parametrize("architecture", Architecture)
@pytest.mark.parametrize("k", [1, 2])
def test_engines_that_agree_differ_by_rounding_alone(architecture: Architecture, k: int) -> None:
    sampled, d = _sampled(architecture=architecture, k=k)
    assert d.abs().max() < 1e-4
    assert sampled.version == 7


def test_responses_end_with_eos_or_at_the_limit() -> None:
    sampled, _ = _sampled()
    lengths = sampled.mask.sum(dim=1)
    last = sampled.tokens.gather(1, lengths[:, None] - 1)[:, 0]
    assert ((last == EOS) == ~sampled.truncated).all()
    assert (lengths[sampled.truncated] == TASK.response_limit).all()
    assert len(set(lengths.tolist())) > 3
    before_last = sampled.mask.clone()
    before_last[torch.arange(len(lengths)), lengths - 1] = False
    assert (sampled.tokens[before_last] != EOS).all()
    assert (sampled.tokens[~sampled.mask] == EOS).all()
    assert (sampled.mask.long().diff(dim=1) <= 0).all()


def test_equal_generators_sample_equal_responses() -> None:
    assert _sampled()[0].tokens.equal(_sampled()[0].tokens)


def test_coarser_weights_differ_more() -> None:
    formats = (WeightFormat.FLOAT32, WeightFormat.FLOAT16, WeightFormat.BFLOAT16, WeightFormat.FLOAT8)
    gaps = [_mean_gap(EngineMismatch(weight_format=weight_format)) for weight_format in formats]
    assert gaps == sorted(gaps)
    assert gaps[0] < gaps[1] / 10
    integers = [
        _mean_gap(EngineMismatch(weight_format=each))
        for each in (WeightFormat.INT8, WeightFormat.INT4, WeightFormat.INT3)
    ]
    assert integers == sorted(integers)
    assert integers[1] > 2 * integers[0]


@pytest.mark.parametrize(("weight_format", "n_values"), [(WeightFormat.INT4, 15), (WeightFormat.INT3, 7)])
def test_integer_weights_have_as_many_values_as_their_bits_allow(weight_format: WeightFormat, n_values: int) -> None:
    weight = torch.linspace(-3.0, 3.0, 2500).view(50, 50)
    rounded = rounded_weights({"w": weight, "b": weight[0]}, weight_format)
    assert len(rounded["w"].unique()) == n_values
    assert rounded["b"].equal(weight[0].bfloat16().float())
    assert (rounded["w"] - weight).abs().max() <= weight.abs().max() / (n_values - 1) + 1e-6


def test_router_noise_sends_tokens_to_other_experts() -> None:
    learner, noisy = policy(), engine()
    noisy.load(learner.copied_weights(), version=0, weight_format=WeightFormat.FLOAT32)
    mismatch = EngineMismatch(weight_format=WeightFormat.FLOAT32, router_noise=constant(2.0))
    sampled = noisy.sample(prompts(), copies=2, mismatch=mismatch, update=0)
    with torch.no_grad():
        plain = learner.score(sampled.prompts.tokens, sampled.tokens)
        replayed = learner.score(sampled.prompts.tokens, sampled.tokens, replayed=sampled.experts)
    assert (sampled.experts != plain.experts)[sampled.mask].float().mean() > 0.1
    assert replayed.experts.equal(sampled.experts)


def test_a_nucleus_reports_renormalised_logprobs() -> None:
    _, d = _sampled(EngineMismatch(weight_format=WeightFormat.FLOAT32, top_p=constant(0.6)))
    assert (d <= 1e-4).all()
    assert d.min() < -0.1


def test_a_temperature_is_in_the_reported_logprobs() -> None:
    cool, d = _sampled(EngineMismatch(weight_format=WeightFormat.FLOAT32, temperature=constant(0.5)))
    assert d[cool.mask].mean() < -0.05


def test_padded_ends_are_zero_from_one_position_on() -> None:
    sampled, _ = _sampled(EngineMismatch(weight_format=WeightFormat.FLOAT32, padded_share=constant(1.0)))
    is_zero = (sampled.logprobs == 0.0) & sampled.mask
    assert is_zero.any(dim=1).all()
    assert (is_zero.long().diff(dim=1)[sampled.mask[:, 1:]] >= 0).all()
    assert not (_sampled()[0].logprobs == 0.0)[_sampled()[0].mask].any()
