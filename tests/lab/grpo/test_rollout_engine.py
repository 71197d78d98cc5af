"""Policies and the rollout engine: without a mismatch engines agree; each mismatch moves what it says."""

from __future__ import annotations

import pytest
import torch

from tests.lab.grpo.experiments import MOE, TASK, check_reads_alike, engine, policy, prompts, sampled
from trmon.lab.grpo.experiment_config import EngineMismatch, WeightFormat, constant
from trmon.lab.grpo.mismatched_engine import rounded_weights
from trmon.lab.grpo.tasks import EOS
from trmon.lab.grpo.token_policy import N_EXPERTS, ExpertLayer, load_imbalance, seeded_policy


def test_reading_one_by_one_gives_the_features_of_reading_at_once() -> None:
    check_reads_alike(policy().trunk)


def test_a_policy_comes_from_its_seed_and_leaves_the_global_generator_alone() -> None:
    torch.manual_seed(0)
    expected = torch.rand(1)
    torch.manual_seed(0)
    first, second, other = (seeded_policy(MOE, n_symbols=10, seed=seed).head.weight for seed in (1, 1, 2))
    assert torch.rand(1) == expected
    assert first.equal(second)
    assert not first.equal(other)


@pytest.mark.parametrize("k", [1, 2])
def test_experts_are_those_with_the_largest_routing_logits(k: int) -> None:
    layer = ExpertLayer(8, k=k)
    features = torch.randn(5, 8, generator=torch.Generator().manual_seed(0))
    out, experts, routing = layer(features, noise=None, replayed=None)
    for row in range(5):
        gates, expected = routing[row].softmax(dim=0), features[row]
        for expert in routing[row].argsort(descending=True)[:k]:
            expected = expected + gates[expert] * (features[row] @ layer.experts[expert]).tanh()
        torch.testing.assert_close(out[row], expected)
    assert experts.shape == (5, k)


def test_replayed_experts_are_taken_whatever_the_router_says() -> None:
    layer = ExpertLayer(8, k=1)
    features = torch.randn(5, 8, generator=torch.Generator().manual_seed(0))
    plain, chosen, _ = layer(features, noise=None, replayed=None)
    others = (chosen + 1) % N_EXPERTS
    out, experts, _ = layer(features, noise=None, replayed=others)
    assert experts.equal(others)
    assert not torch.isclose(out, plain).all(dim=1).any()
    torch.testing.assert_close(layer(features, noise=None, replayed=chosen)[0], plain)


def test_a_balanced_router_has_an_imbalance_of_one() -> None:
    assert load_imbalance(20.0 * torch.eye(N_EXPERTS)).item() == pytest.approx(1.0)
    assert load_imbalance(20.0 * torch.eye(N_EXPERTS)[[0, 0, 0, 0]]).item() == pytest.approx(N_EXPERTS, rel=1e-3)


def _mean_gap(mismatch: EngineMismatch) -> float:
    responses, d = sampled(mismatch)
    return (d.abs().sum() / responses.mask.sum()).item()


@pytest.mark.parametrize("k", [1, 2])
def test_engines_that_agree_differ_by_rounding_alone(k: int) -> None:
    responses, d = sampled(k=k)
    assert d.abs().max() < 1e-4
    assert responses.version == 7


def test_responses_end_with_eos_or_at_the_limit() -> None:
    responses, _ = sampled()
    lengths = responses.mask.sum(dim=1)
    last = responses.tokens.gather(1, lengths[:, None] - 1)[:, 0]
    assert ((last == EOS) == ~responses.truncated).all()
    assert (lengths[responses.truncated] == TASK.response_limit).all()
    assert len(set(lengths.tolist())) > 3
    before_last = responses.mask.clone()
    before_last[torch.arange(len(lengths)), lengths - 1] = False
    assert (responses.tokens[before_last] != EOS).all()
    assert (responses.tokens[~responses.mask] == EOS).all()
    assert (responses.mask.long().diff(dim=1) <= 0).all()


def test_equal_generators_sample_equal_responses() -> None:
    assert sampled()[0].tokens.equal(sampled()[0].tokens)


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
    responses = noisy.sample(prompts(), copies=2, mismatch=mismatch, update=0)
    with torch.no_grad():
        plain = learner.score(responses.prompts.tokens, responses.tokens)
        replayed = learner.score(responses.prompts.tokens, responses.tokens, replayed=responses.experts)
    assert (responses.experts != plain.experts)[responses.mask].float().mean() > 0.1
    assert replayed.experts.equal(responses.experts)


def test_a_nucleus_reports_renormalised_logprobs() -> None:
    _, d = sampled(EngineMismatch(weight_format=WeightFormat.FLOAT32, top_p=constant(0.6)))
    assert (d <= 1e-4).all()
    assert d.min() < -0.1


def test_a_temperature_is_in_the_reported_logprobs() -> None:
    cool, d = sampled(EngineMismatch(weight_format=WeightFormat.FLOAT32, temperature=constant(0.5)))
    assert d[cool.mask].mean() < -0.05


def test_padded_ends_are_zero_from_one_position_on() -> None:
    responses, _ = sampled(EngineMismatch(weight_format=WeightFormat.FLOAT32, padded_share=constant(1.0)))
    is_zero = (responses.logprobs == 0.0) & responses.mask
    assert is_zero.any(dim=1).all()
    assert (is_zero.long().diff(dim=1)[responses.mask[:, 1:]] >= 0).all()
    assert not (sampled()[0].logprobs == 0.0)[sampled()[0].mask].any()
