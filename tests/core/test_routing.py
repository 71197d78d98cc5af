"""Router flips against sets of experts, token by token and layer by layer; the load of experts by its definition."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import product

import numpy as np
import pytest
import torch

from trmon_client.moe import flips, max_vio


def ids(rng: np.random.Generator, *shape: int, k: int) -> np.ndarray:
    """Return k distinct experts of 6 in random order, [*shape, k]."""
    return rng.random((*shape, 6)).argsort(-1)[..., :k]


@pytest.mark.parametrize("as_given", [np.asarray, torch.as_tensor])
def test_flips_are_sets_that_differ(as_given: object) -> None:
    rng = np.random.default_rng(0)
    rollout, train = ids(rng, 3, 5, 4, k=2), ids(rng, 3, 5, 4, k=2)
    mask = rng.random((3, 5)) < 0.7
    found = flips(as_given(rollout), as_given(train), mask=as_given(mask))  # type: ignore[operator]
    expected = np.zeros((3, 5, 4), bool)
    for at in product(*map(range, expected.shape)):
        expected[at] = set(rollout[at].tolist()) != set(train[at].tolist())
    assert 0 < expected.mean() < 1
    assert found.by_layer == pytest.approx(expected[mask].mean(0))
    assert found.by_token[mask] == pytest.approx(expected[mask].mean(-1))
    assert np.isnan(found.by_token[~mask]).all()
    assert found.rate == pytest.approx(expected[mask].mean())
    assert found.token_rate == pytest.approx(expected[mask].any(-1).mean())
    assert found.n_routings == mask.sum() * 4


def test_every_pair_of_sets_of_two_experts_of_three_flips_but_the_equal_ones() -> None:
    pairs = [(a, b) for a, b in product(range(3), repeat=2) if a != b]
    for one, other in product(pairs, repeat=2):
        assert flips([[one]], [[other]]).rate == float(set(one) != set(other))


def test_routings_without_experts_do_not_count() -> None:
    found = flips([[[0, 1], [-1, -1]]], [[[1, 2], [0, 1]]])
    assert found.by_layer[0] == found.rate == found.token_rate == 1.0
    assert math.isnan(found.by_layer[1])
    assert found.scalars() == {"router_flip_rate": 1.0, "router_flip_layer_max": 1.0}
    assert list(found.scalars(layers=True))[2:] == ["router_flip_layer_0", "router_flip_layer_1"]


def test_without_a_token_every_share_is_nan() -> None:
    for found in (
        flips(np.zeros((0, 2, 1), int), np.zeros((0, 2, 1), int)),
        flips(np.zeros((3, 2, 1), int), np.zeros((3, 2, 1), int), mask=np.zeros(3)),
    ):
        assert found.n_routings == 0
        assert all(math.isnan(value) for value in (found.rate, found.token_rate, *found.scalars().values()))


def test_a_balanced_load_has_no_violation_and_one_expert_the_largest() -> None:
    assert max_vio([[[0, 1]], [[2, 3]]], n_experts=4) == 0.0
    assert max_vio([[[0, 1]], [[0, 1]]], n_experts=4) == 1.0
    assert max_vio([[[0]], [[0]]], n_experts=4) == 3.0


def test_the_violation_is_that_of_the_worst_layer() -> None:
    rng = np.random.default_rng(0)
    ids, mask = rng.integers(0, 8, (4, 6, 3, 2)), rng.random((4, 6)) < 0.5
    loads = [[int((ids[mask][:, layer] == expert).sum()) for expert in range(8)] for layer in range(3)]
    expected = max(max(load) / (sum(load) / 8) - 1 for load in loads)
    assert max_vio(ids, n_experts=8, mask=mask) == pytest.approx(expected)
    assert max_vio(torch.as_tensor(ids), n_experts=8, mask=torch.as_tensor(mask)) == pytest.approx(expected)


def test_without_a_routing_it_is_nan() -> None:
    assert math.isnan(max_vio([[[-1]]], n_experts=2))
    assert math.isnan(max_vio(np.zeros((0, 1, 1), int), n_experts=2))


@pytest.mark.parametrize(
    ("call", "named"),
    [
        (lambda: flips([0, 1], [0, 1]), "rollout_ids"),
        (lambda: flips([[0.5]], [[0.5]]), "rollout_ids"),
        (lambda: flips([[0]], [[0, 1]]), "train_ids"),
        (lambda: flips([[[0]]], [[[0]]], mask=[1, 1]), "mask"),
        (lambda: max_vio([[[2]]], n_experts=2), "expert_ids"),
        (lambda: max_vio([2], n_experts=2), "expert_ids"),
        (lambda: max_vio([[[0]]], n_experts=2, mask=[1, 1]), "mask"),
    ],
)
def test_an_argument_that_does_not_fit_is_named(call: Callable[[], object], named: str) -> None:
    with pytest.raises(ValueError, match=f"^{named} "):
        call()
