"""Rounds weights and outputs to the precision of a rollout engine."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from trmon.lab.grpo.experiment_config import WeightFormat

INTEGER_BITS = {WeightFormat.INT8: 8, WeightFormat.INT4: 4, WeightFormat.INT3: 3}
LARGEST_FLOAT8 = 448.0
ACTIVATION_TYPES = {
    WeightFormat.FLOAT32: torch.float32,
    WeightFormat.FLOAT16: torch.float16,
}
"""Precision of features and logits; bfloat16 where a format is not listed, as engines with quantised weights have."""


def rounded_weights(weights: Mapping[str, Tensor], weight_format: WeightFormat) -> dict[str, Tensor]:
    """Return the weights in a format, as float32; biases and norms keep 16 bits, as inference engines keep them."""
    return {name: _rounded(weight, weight_format) for name, weight in weights.items()}


def _rounded(weight: Tensor, weight_format: WeightFormat) -> Tensor:
    if weight_format is WeightFormat.FLOAT32:
        return weight
    if weight_format is WeightFormat.FLOAT16:
        return weight.half().float()
    if weight_format is WeightFormat.BFLOAT16 or weight.dim() < 2:
        return weight.bfloat16().float()
    if weight_format is WeightFormat.FLOAT8:
        return _to_float8(weight)
    return _to_integers(weight, bits=INTEGER_BITS[weight_format])


def rounded_activations(values: Tensor, weight_format: WeightFormat) -> Tensor:
    """Return features or logits in the precision that an engine with weights in this format computes them in."""
    return values.to(ACTIVATION_TYPES.get(weight_format, torch.bfloat16)).float()


def _to_float8(weight: Tensor) -> Tensor:
    scale = weight.abs().max().clamp(min=1e-12) / LARGEST_FLOAT8
    rounded: Tensor = (weight / scale).to(torch.float8_e4m3fn).float() * scale
    return rounded


def _to_integers(weight: Tensor, *, bits: int) -> Tensor:
    """Return a tensor rounded to the nearest multiple of its largest magnitude over 2^(bits - 1) - 1."""
    spacing = weight.abs().max().clamp(min=1e-12) / (2 ** (bits - 1) - 1)
    rounded: Tensor = (weight / spacing).round() * spacing
    return rounded
