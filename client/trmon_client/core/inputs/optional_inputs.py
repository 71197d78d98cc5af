"""Checks the optional arguments: advantages, rewards, group labels, versions and truncation."""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import Any

import numpy as np

from trmon_client.core.arrays.backend import Array, Device, is_tensor
from trmon_client.core.arrays.conversion import argument_to_computable, dtype_kind
from trmon_client.core.inputs import packed
from trmon_client.core.inputs.group_labels import group_labels
from trmon_client.core.inputs.input_layout import InputLayout
from trmon_client.core.inputs.ragged import is_ragged, pad_rows, to_rows

_DTYPES = {"f": "a floating dtype", "i": "an integer dtype", "bi": "booleans or integers", "fib": "a real dtype"}
"""The expected dtype by its allowed kinds."""


@dataclass(frozen=True)
class OptionalInputs:
    """Checks optional arguments against the shape and the layout of the first log-probs."""

    shape: tuple[int, ...]
    like: str
    layout: InputLayout
    device: Device

    def per_sequence(self, name: str, value: Any, *, kinds: str) -> Array | None:
        """Return an argument with one number per sequence, [B]."""
        if value is None:
            return None
        return self._check(name, argument_to_computable(name, value, self.device), [self.shape[:1]], kinds)

    def per_token(self, name: str, value: Any, *, kinds: str) -> Array | None:
        """Return an argument with one number per sequence or per token, [B] or [B, T]."""
        if value is None:
            return None
        lengths = list(self.layout.lengths or ())
        if self.layout.is_packed:
            array = self._check(
                name, argument_to_computable(name, value, self.device), [self.shape[:1], (sum(lengths),)], kinds
            )
            # If there are as many sequences as tokens, the values are per sequence.
            return array if len(array) == self.shape[0] else packed.pad_packed(array, lengths=lengths)
        if self.layout.lengths is not None and is_ragged(value):
            array = pad_rows(name, to_rows(name, value, self.device), like=(self.like, lengths))
        else:
            array = argument_to_computable(name, value, self.device)
        return self._check(name, array, [self.shape[:1], self.shape], kinds)

    def of_tokens(self, name: str, value: Any, *, kinds: str) -> Array:
        """Return an argument with one number per token, [B, T]; values after the end of a sequence are undefined."""
        lengths = list(self.layout.lengths or ())
        if self.layout.is_packed:
            flat = argument_to_computable(name, value, self.device)
            return packed.pad_packed(self._check(name, flat, [(sum(lengths),)], kinds), lengths=lengths)
        if self.layout.lengths is not None and is_ragged(value):
            array = pad_rows(name, to_rows(name, value, self.device), like=(self.like, lengths))
        else:
            array = argument_to_computable(name, value, self.device)
        return self._check(name, array, [self.shape], kinds)

    def labels(self, name: str, value: Any) -> Array | None:
        """Return an argument with one label per sequence, int64 [B]."""
        if value is None:
            return None
        if isinstance(value, (list, tuple)) and value and is_tensor(value[0]):
            value = argument_to_computable(name, value, self.device)
        shape = tuple(value.shape) if hasattr(value, "shape") else (len(value),) if hasattr(value, "__len__") else ()
        if shape != self.shape[:1]:
            raise ValueError(f"{name} has shape {shape}; expected {self.shape[:1]}, one label for each sequence")
        return group_labels(value, self.device)

    def _check(self, name: str, array: Array, shapes: list[tuple[int, ...]], kinds: str) -> Array:
        if tuple(array.shape) not in shapes:
            expected = " or ".join(str(shape) for shape in shapes)
            raise ValueError(f"{name} has shape {tuple(array.shape)}; expected {expected} like {self.like}")
        # The dtype of an empty array is not checked, because an empty list has no dtype.
        if dtype_kind(array) not in kinds and 0 not in array.shape:
            raise ValueError(f"{name} has dtype {array.dtype}; expected {_DTYPES[kinds]}")
        # Tensors are not checked, to avoid waiting for a device.
        if not is_tensor(array) and array.dtype == np.uint64 and array.max(initial=0) > np.iinfo(np.int64).max:
            raise ValueError(f"{name} has {array.max()}; expected integers below 2**63")
        return array


def policy_version(name: str, version: Any) -> int | None:
    """Return the version number of a policy. Errors: ValueError unless it is an integer or None."""
    try:
        return None if version is None else operator.index(version)
    except TypeError as error:
        raise ValueError(f"{name} is {version!r}; expected an integer") from error
