"""Rounds weights to the precision of an engine with fewer bits."""

from __future__ import annotations

from torch import Tensor

from trmon.lab.testbed.policy import Weights


def bfloat16(weights: Weights) -> Weights:
    """Return the weights rounded to bfloat16: the small mismatch of a healthy engine."""
    return {name: weight.bfloat16().float() for name, weight in weights.items()}


def quantised(weights: Weights, *, bits: int) -> Weights:
    """Return the weights with every matrix rounded to integers of `bits` bits, one scale per tensor.

    Biases keep their precision, as they do in inference engines. Args: bits: at least 2.
    """
    return {
        name: quantised_tensor(weight, bits=bits) if weight.dim() > 1 else weight for name, weight in weights.items()
    }


def quantised_tensor(weight: Tensor, *, bits: int) -> Tensor:
    """Return a tensor rounded to the nearest multiple of its largest magnitude over 2^(bits - 1) - 1."""
    spacing = weight.abs().max() / (2 ** (bits - 1) - 1)
    return (weight / spacing).round() * spacing if spacing > 0 else weight
