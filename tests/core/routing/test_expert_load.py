"""The load of experts against its definition."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from trmon_client.moe import max_vio


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
    ("ids", "mask", "named"), [([[[2]]], None, "expert_ids"), ([2], None, "expert_ids"), ([[[0]]], [1, 1], "mask")]
)
def test_an_argument_that_does_not_fit_is_named(ids: object, mask: object, named: str) -> None:
    with pytest.raises(ValueError, match=f"^{named} "):
        max_vio(ids, n_experts=2, mask=mask)
