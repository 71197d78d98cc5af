"""Masks of the same kind and on the same device as the tensors that the trainer passed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from trmon_client.core.arrays import Array, Device, is_tensor

SHAPED_ALIKE = ("logprobs", "old_logprobs", "rollout_logprobs", "mask")
"""The arguments of one shape, in the order in which they are asked for it."""


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """The number of sequences, B, and the device of the trainer's tensors; None for numpy."""

    n_sequences: int
    device: Device

    @classmethod
    def of(cls, arguments: Mapping[str, Any]) -> TensorSpec:
        """Return the spec of arguments that need not be valid; B is 0 where no argument has a length."""
        given = [value for name in SHAPED_ALIKE if (value := arguments.get(name)) is not None]
        offsets = arguments.get("cu_seqlens")
        n_offsets = None if offsets is None else _length(offsets)
        return cls(n_offsets - 1 if n_offsets else _first_length(given), _first_device(given))

    def all_true(self) -> Array:
        """Return [B] true."""
        if self.device is None:
            return np.ones(self.n_sequences, bool)
        import torch

        # Not made from the inputs: nested, sharded and sparse tensors refuse, or give one of their own kind.
        return torch.ones(self.n_sequences, dtype=torch.bool, device=self.device)

    def copy(self, accepted: Array) -> Array:
        """Return booleans [B] as an array of their own."""
        if is_tensor(accepted):
            return accepted.clone()
        if self.device is None:
            return accepted.copy()
        import torch

        return torch.tensor(accepted, dtype=torch.bool, device=self.device)

    def to_inputs(self, array: Array | list[Array]) -> Array | list[Array]:
        """Return an array, or a list of rows, in the kind and on the device of the inputs."""
        if isinstance(array, list):
            return [self.to_inputs(row) for row in array]
        if self.device is None or is_tensor(array):
            return array
        import torch

        return torch.from_numpy(np.ascontiguousarray(array)).to(self.device)


def _first_length(values: list[Any]) -> int:
    for value in values:
        length = _length(value)
        if length is not None:
            return length
    return 0


def _first_device(values: list[Any]) -> Device:
    for value in values:
        row = value[0] if isinstance(value, (list, tuple)) and value else value
        if is_tensor(row):
            return row.device
    return None


def _length(value: Any) -> int | None:
    try:
        return int(value.size(0)) if is_tensor(value) else len(value)
    except (TypeError, IndexError, RuntimeError):
        return None
