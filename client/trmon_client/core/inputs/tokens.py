"""Reads the tokens of a batch, given padded, ragged or packed, as padded [B, T] arrays, and restores their layout."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np

from trmon_client.core.arrays import (
    Array,
    Device,
    argument_to_computable,
    devices_of,
    dtype_kind,
    is_tensor,
    to_computable,
)


def is_ragged(value: object) -> bool:
    """Return whether a value is a list of sequences rather than an array or a list of numbers."""
    if not isinstance(value, (list, tuple)):
        return False
    return not value or getattr(value[0], "ndim", 1 if isinstance(value[0], (list, tuple)) else 0) > 0


def to_rows(name: str, rows: Sequence[Any], device: Device) -> list[Array]:
    """Return each sequence as a 1-D array on the device.

    Errors: ValueError naming the sequence that is not one-dimensional.
    """
    arrays = [argument_to_computable(f"{name}[{index}]", row, device) for index, row in enumerate(rows)]
    for index, array in enumerate(arrays):
        if array.ndim != 1:
            raise ValueError(
                f"{name}[{index}] has shape {tuple(array.shape)}; expected a 1-D array, one number for each token"
            )
    return arrays


def pad_rows(name: str, rows: list[Array], *, like: tuple[str, list[int]]) -> Array:
    """Return rows as one array [B, T], with zeros after the end of each row.

    Args: like: the name and lengths of the argument whose sequences these must match.
    Errors: ValueError naming the sequence whose length differs.
    """
    expected, lengths = like
    if len(rows) != len(lengths):
        raise ValueError(f"{name} has {len(rows)} sequences; expected {len(lengths)} like {expected}")
    for index, (row, length) in enumerate(zip(rows, lengths, strict=True)):
        if len(row) != length:
            raise ValueError(f"{name}[{index}] has shape ({len(row)},); expected ({length},) like {expected}[{index}]")
    padded = _zeros((len(rows), max(lengths, default=0)), rows)
    for target, row in zip(padded, rows, strict=True):
        target[: len(row)] = row
    return padded


def _zeros(shape: tuple[int, int], rows: list[Array]) -> Array:
    """Return zeros of the dtype that can hold every row; empty rows are ignored, because an empty list has no dtype."""
    if not rows:
        return np.zeros(shape)
    dtypes = [row.dtype for row in rows if len(row)] or [rows[0].dtype]
    if is_tensor(rows[0]):
        return rows[0].new_zeros(shape, dtype=reduce(sys.modules["torch"].promote_types, dtypes))
    return np.zeros(shape, np.result_type(*dtypes))


def row_mask(lengths: list[int], device: Device) -> Array:
    """Return the boolean mask [B, T] of the positions before the end of each sequence."""
    return to_computable(np.arange(max(lengths, default=0)) < np.array(lengths, np.int64)[:, None], device)


def lengths_of(cu_seqlens: Any) -> list[int]:
    """Return the lengths of the B sequences given by B + 1 offsets.

    Offsets on a device are awaited, because the length of the longest sequence is needed.
    Errors: ValueError naming the invalid offset.
    """
    offsets = argument_to_computable("cu_seqlens", cu_seqlens, None)
    if offsets.ndim != 1 or not len(offsets) or dtype_kind(offsets) != "i":
        raise ValueError(
            f"cu_seqlens has shape {tuple(offsets.shape)} and dtype {offsets.dtype}; "
            "expected integers (B + 1,), the starts of B sequences and the end of the last one"
        )
    lengths = np.diff(offsets.astype(np.int64))
    if offsets[0] != 0 or (lengths < 0).any():
        wrong = 0 if offsets[0] != 0 else int(np.argmax(lengths < 0)) + 1
        raise ValueError(
            f"cu_seqlens[{wrong}] is {offsets[wrong]}; expected offsets that start at 0 and never decrease"
        )
    as_list: list[int] = lengths.tolist()
    return as_list


def pad_packed(array: Array, *, lengths: list[int]) -> Array:
    """Return packed tokens as [B, T]; values after the end of a sequence are undefined."""
    shape = (len(lengths), max(lengths, default=0))
    if not is_tensor(array):
        padded = np.zeros(shape, array.dtype)
        padded[row_mask(lengths, None)] = array
        return padded
    first = np.cumsum([0, *lengths[:-1]])[: len(lengths), None]
    indices = np.minimum(first + np.arange(shape[1]), max(0, len(array) - 1))
    return array[to_computable(indices, array.device)]


def unpad_packed(padded: Array, *, lengths: list[int]) -> Array:
    """Return [B, T, ...] as packed tokens, [N, ...]."""
    rows = np.repeat(np.arange(len(lengths)), lengths)
    first = np.cumsum([0, *lengths[:-1]])[: len(lengths)]
    positions = np.arange(len(rows)) - np.repeat(first, lengths)
    if not is_tensor(padded):
        return padded[rows, positions]
    return padded[to_computable(rows, padded.device), to_computable(positions, padded.device)]


@dataclass(frozen=True, slots=True)
class InputLayout:
    """Padded to a horizon, ragged (a list of rows), or packed (concatenated rows), with the lengths of the rows."""

    horizon: int
    lengths: tuple[int, ...] | None = None
    is_packed: bool = False

    def restored(self, padded: Array) -> Array | list[Array]:
        """Return [B, T] as [B, horizon], as a list of B rows, or as [N]."""
        if self.lengths is None:
            return padded[:, : self.horizon]
        if self.is_packed:
            return unpad_packed(padded, lengths=list(self.lengths))
        return [row[:length] for row, length in zip(padded, self.lengths, strict=True)]


@dataclass(frozen=True)
class TokenInputs:
    """Log-probs by argument name and the mask, [B, T] on one device, and the layout in which they were given."""

    logprobs: dict[str, Array]
    mask: Array
    layout: InputLayout


def read_token_inputs(given: dict[str, Any], *, mask: Any, cu_seqlens: Any, device: Device) -> TokenInputs:
    """Return the given log-probs, if any, and the mask, padded.

    Errors: ValueError naming the argument, its shape or dtype and the expected one.
    """
    if cu_seqlens is not None:
        tokens = _from_packed(given, mask, cu_seqlens, device)
    elif any(isinstance(value, (list, tuple)) for value in given.values()) or (not given and is_ragged(mask)):
        tokens = _from_ragged(given, mask, device)
    else:
        tokens = _from_arrays(given, mask, device)
    (first, reference), *rest = {**tokens.logprobs, "mask": tokens.mask}.items()
    shape = tuple(reference.shape)
    if len(shape) != 2:
        raise ValueError(f"{first} has shape {shape}; expected two dimensions, [sequences, tokens]")
    for name, array in rest:
        if tuple(array.shape) != shape:
            raise ValueError(f"{name} has shape {tuple(array.shape)}; expected {shape} like {first}")
    for name, array in tokens.logprobs.items():
        if dtype_kind(array) != "f":
            raise ValueError(f"{name} has dtype {array.dtype}; expected a floating dtype")
    if dtype_kind(tokens.mask) not in "bif":
        raise ValueError(f"mask has dtype {tokens.mask.dtype}; expected booleans, integers or floats")
    return tokens


def device_of(given: dict[str, Any]) -> Device:
    """Return the CUDA device of the tensors among the arguments; None for the host.

    Errors: ValueError if they are on several devices.
    """
    devices = devices_of(row for value in given.values() for row in (value if is_ragged(value) else [value]))
    if len(devices) > 1:
        where = ", ".join(f"{name} on {value.device}" for name, value in given.items() if hasattr(value, "device"))
        raise ValueError(f"log-probs and mask are on several devices ({where}); expected one")
    return devices[0] if devices else None


def _from_arrays(given: dict[str, Any], mask: Any, device: Device) -> TokenInputs:
    padded = {name: argument_to_computable(name, value, device) for name, value in given.items()}
    if mask is None and not given:
        raise ValueError("neither log-probs nor a mask are given; expected mask=, set where a token counts")
    if mask is None:
        shape = tuple(next(iter(padded.values())).shape)
        raise ValueError(f"mask is None; expected a mask of shape {shape}, set where a token counts")
    whole = argument_to_computable("mask", mask, device)
    return TokenInputs(padded, whole, InputLayout(whole.shape[-1] if whole.ndim else 0))


def _from_packed(given: dict[str, Any], mask: Any, cu_seqlens: Any, device: Device) -> TokenInputs:
    lengths = lengths_of(cu_seqlens)
    flat = {name: argument_to_computable(name, value, device) for name, value in given.items()}
    if mask is not None:
        flat["mask"] = argument_to_computable("mask", mask, device)
    for name, array in flat.items():
        if tuple(array.shape) != (sum(lengths),):
            raise ValueError(f"{name} has shape {tuple(array.shape)}; expected ({sum(lengths)},) by cu_seqlens")
    padded = {name: pad_packed(array, lengths=lengths) for name, array in flat.items()}
    whole, counted = row_mask(lengths, device), padded.pop("mask", None)
    layout = InputLayout(max(lengths, default=0), tuple(lengths), is_packed=True)
    return TokenInputs(padded, whole if counted is None else whole & (counted != 0), layout)


def _from_ragged(given: dict[str, Any], mask: Any, device: Device) -> TokenInputs:
    for name, value in given.items():
        if not is_ragged(value):
            form = f"an array of shape {tuple(value.shape)}" if hasattr(value, "shape") else "a list of numbers"
            raise ValueError(f"{name} is {form}; expected a list of 1-D arrays, one for each sequence, like the others")
    rows = {name: to_rows(name, value, device) for name, value in (given or {"mask": mask}).items()}
    first = next(iter(rows))
    like = (first, [len(row) for row in rows[first]])
    padded = {name: pad_rows(name, rows[name], like=like) for name in given}
    layout = InputLayout(max(like[1], default=0), tuple(like[1]))
    if mask is None:
        return TokenInputs(padded, row_mask(like[1], device), layout)
    if not is_ragged(mask):
        raise ValueError(f"mask is an array; expected a list of 1-D arrays like {first}, or None if all tokens count")
    return TokenInputs(padded, pad_rows("mask", to_rows("mask", mask, device), like=like), layout)
