"""The policy: parallel scores equal those of stepwise sampling."""

from __future__ import annotations

import torch

from trmon.lab.testbed.injection import Fault
from trmon.lab.testbed.policy import N_EXPERTS, new_policy, policy_with_weights
from trmon.lab.testbed.precision import bfloat16
from trmon.lab.testbed.rollout import RolloutEngine
from trmon.lab.testbed.task import draw_prompts


def test_engines_of_equal_weights_and_precision_agree_on_every_token() -> None:
    weights = bfloat16(new_policy(0).weights())
    engine = RolloutEngine(generator=torch.Generator().manual_seed(1))
    engine.load(weights, version=0)
    prompts = draw_prompts(64, generator=torch.Generator().manual_seed(2))
    rollout = engine.generate(prompts, fault=Fault())
    scored = policy_with_weights(weights).score(prompts, rollout.tokens)
    torch.testing.assert_close(scored.logprobs, rollout.logprobs, atol=1e-5, rtol=0)
    assert torch.equal(scored.experts, rollout.experts)


def test_logprobs_do_not_read_ahead() -> None:
    prompts = draw_prompts(4, generator=torch.Generator().manual_seed(2))
    response = torch.zeros((4, 16), dtype=torch.int64)
    other_end = response.clone()
    other_end[:, 8:] = 5
    policy = new_policy(0)
    before = [policy.score(prompts, tokens).logprobs[:, :8] for tokens in (response, other_end)]
    torch.testing.assert_close(*before, atol=0, rtol=0)


def test_every_parameter_learns() -> None:
    prompts = draw_prompts(64, generator=torch.Generator().manual_seed(2))
    policy = new_policy(0)
    policy.score(prompts, torch.zeros((64, 16), dtype=torch.int64)).logprobs.sum().backward()
    assert all(parameter.grad is not None and parameter.grad.any() for parameter in policy.parameters())


def test_router_noise_changes_the_expert() -> None:
    policy = new_policy(0)
    features = torch.zeros((1, 1, 80))
    for expert in range(N_EXPERTS):
        noise = torch.zeros((1, 1, N_EXPERTS))
        noise[..., expert] = 100.0
        assert policy.read(features, router_noise=noise).experts.item() == expert


def test_a_seed_determines_the_policy_and_leaves_the_global_generator_alone() -> None:
    state = torch.random.get_rng_state()
    one, same, other = new_policy(3).weights(), new_policy(3).weights(), new_policy(4).weights()
    assert all(torch.equal(one[name], same[name]) for name in one)
    assert not torch.equal(one["head.weight"], other["head.weight"])
    assert torch.equal(torch.random.get_rng_state(), state)


def test_weights_are_a_copy() -> None:
    policy = new_policy(0)
    weights = policy.weights()
    with torch.no_grad():
        policy.head.bias.add_(1.0)
    assert not torch.equal(weights["head.bias"], policy.head.bias)
    assert torch.equal(policy_with_weights(weights).head.bias, weights["head.bias"])
