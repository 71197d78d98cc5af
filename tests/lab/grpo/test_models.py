"""Policies: reading at once equals reading one by one, and experts follow the router or a replay."""

from __future__ import annotations

import pytest
import torch

from tests.lab.grpo.experiments import MOE, check_reads_alike, policy
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
