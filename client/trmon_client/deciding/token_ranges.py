"""Ranges of the given log-probs, which reveal probabilities passed in their place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from trmon_client.core.arrays import Array, is_tensor
from trmon_client.core.inputs.checked_inputs import CheckedInputs

POSITIVE_NOISE = 1e-4
"""How far above 0 rounding may put a log-prob. Source: formulas, section 2."""


@dataclass(frozen=True)
class TokenRanges:
    """The least and the largest value of each given policy over tokens that count, on the device of the inputs, [2]."""

    by_argument: Mapping[str, Array]

    @classmethod
    def of(cls, inputs: CheckedInputs) -> TokenRanges:
        """Return the ranges without waiting for the device; a batch without a position has none."""
        if not all(inputs.mask.shape):
            return cls({})
        return cls({name: _range(values, inputs.mask) for name, values in inputs.logprobs.items()})


def probabilities_in(ranges: Mapping[str, Any]) -> list[str]:
    """Return the arguments whose counted values all lie within [0, 1], some of them well above 0.

    Args: ranges: (least, largest) by argument, read from the device; NaN where a value is.
    """
    return [name for name, (least, largest) in ranges.items() if least >= 0 and POSITIVE_NOISE < largest <= 1]


def probabilities_text(names: list[str]) -> str:
    """Return the warning about arguments that hold probabilities."""
    given = " and ".join(f"{name}=" for name in names)
    return (
        f"{given} holds values from 0 to 1 only: these are probabilities, and log-probs are expected (at most 0); "
        "pass their logarithm"
    )


def _range(values: Array, mask: Array) -> Array:
    """Tokens that do not count are 0, which is no more than the least probability and no less than any log-prob."""
    if is_tensor(values):
        import torch

        nothing = torch.zeros((), dtype=values.dtype, device=values.device)
        on_device = torch.where(mask, values.detach(), nothing)
        return torch.stack([on_device.min(), on_device.max()]).to(torch.float32)
    counted = np.where(mask, values, 0.0)
    return np.array([counted.min(), counted.max()])
