"""Rounding of weights: the size of the resulting error."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from trmon.lab.testbed.policy import new_policy
from trmon.lab.testbed.precision import bfloat16, quantised, quantised_tensor

MATRICES = st.lists(st.lists(st.floats(-100, 100, width=32), min_size=3, max_size=3), min_size=1, max_size=8).map(
    torch.tensor
)


@given(weight=MATRICES, bits=st.integers(2, 8))
def test_quantisation_is_off_by_half_a_level_at_most(weight: torch.Tensor, bits: int) -> None:
    level = weight.abs().max() / (2 ** (bits - 1) - 1)
    error = (quantised_tensor(weight, bits=bits) - weight).abs().max()
    assert error <= 0.5 * level * (1 + 1e-5)


@given(weight=MATRICES, bits=st.integers(2, 8))
def test_quantised_weights_take_no_more_values_than_their_bits_allow(weight: torch.Tensor, bits: int) -> None:
    assert len(quantised_tensor(weight, bits=bits).unique()) <= 2**bits - 1


def test_a_tensor_of_zeros_stays_zero() -> None:
    assert not quantised_tensor(torch.zeros(2, 2), bits=3).any()


def test_biases_keep_their_precision() -> None:
    weights = new_policy(0).weights()
    rounded = quantised(weights, bits=3)
    changed = {name for name in weights if not torch.equal(weights[name], rounded[name])}
    assert changed == {name for name in weights if weights[name].dim() > 1}


def test_bfloat16_is_close_and_not_equal() -> None:
    weights = new_policy(0).weights()
    for name, rounded in bfloat16(weights).items():
        assert ((rounded - weights[name]).abs() <= weights[name].abs() * 2**-8).all()
        assert not torch.equal(rounded, weights[name])
