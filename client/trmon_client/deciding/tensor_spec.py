"""Masks of the same kind and on the same device as what the trainer passed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from trmon_client.core.arrays.backend import Array, Device, is_tensor

SHAPED_LIKE = ("logprobs", "old_logprobs", "rollout_logprobs", "mask")
OF_TOKENS = (*SHAPED_LIKE, "cu_seqlens")
"""The inputs that say which tokens there are, and in which form."""


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """B, the device of the inputs, None for numpy, and, detached, the inputs that say which tokens there are."""

    n_sequences: int
    device: Device
    tokens: Mapping[str, Any]

    @classmethod
    def of(cls, inputs: Mapping[str, Any]) -> TensorSpec:
        """Return what masks must look like; B is 0 where no input has a length."""
        given = [inputs[name] for name in SHAPED_LIKE if inputs.get(name) is not None]
        rows = [value[0] if isinstance(value, (list, tuple)) and value else value for value in given]
        offsets = _length(inputs.get("cu_seqlens"))
        return cls(
            n_sequences=offsets - 1 if offsets else next((n for n in map(_length, given) if n is not None), 0),
            device=next((row.device for row in rows if is_tensor(row)), None),
            tokens={name: _detached(inputs.get(name)) for name in OF_TOKENS},
        )

    @property
    def cu_seqlens(self) -> Any | None:
        """The offsets of packed sequences, as given."""
        return self.tokens["cu_seqlens"]

    def all_true(self) -> Array:
        """Return [B] true."""
        if self.device is None:
            return np.ones(self.n_sequences, bool)
        import torch

        # Of no relation to the inputs: nested, sharded and sparse ones make none, or one of their own kind.
        return torch.ones(self.n_sequences, dtype=torch.bool, device=self.device)

    def copy(self, accepted: Array) -> Array:
        """Return booleans [B] as an array of their own."""
        if is_tensor(accepted):
            return accepted.clone()
        if self.device is None:
            return accepted.copy()
        import torch

        return torch.tensor(accepted, dtype=torch.bool, device=self.device)

    def own(self, array: Array | list[Array]) -> Array | list[Array]:
        """Return what was computed, an array or a list of rows, in the kind and the place of the inputs."""
        if isinstance(array, list):
            return [self.own(row) for row in array]
        if self.device is None or is_tensor(array):
            return array
        import torch

        return torch.from_numpy(np.ascontiguousarray(array)).to(self.device)


def _detached(value: Any) -> Any:
    """Return an input without its autograd graph, which would live as long as the decision; None where that fails."""
    if isinstance(value, (list, tuple)):
        is_of_numbers = not value or isinstance(value[0], (float, int))
        return value if is_of_numbers else [_detached(row) for row in value]
    # To detach each of a thousand rows costs milliseconds, and most have no graph.
    if not (getattr(value, "requires_grad", False) and is_tensor(value)):
        return value
    try:
        return value.detach()
    except (TypeError, RuntimeError):
        return None


def _length(value: Any) -> int | None:
    try:
        return int(value.size(0)) if is_tensor(value) else len(value)
    except (TypeError, IndexError, RuntimeError):
        return None
