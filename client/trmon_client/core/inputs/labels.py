"""Checks the optional arguments: advantages, rewards, group labels, versions, truncation and turns."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from numbers import Number
from typing import Any

import numpy as np

from trmon_client.core.arrays import (
    Array,
    Device,
    argument_to_computable,
    dtype_kind,
    functions_of,
    is_tensor,
    to_computable,
)
from trmon_client.core.inputs.tokens import InputLayout, is_ragged, pad_packed, pad_rows, to_rows

INT64 = np.iinfo(np.int64)


def group_labels(labels: Any, device: Device) -> Array:
    """Return labels as int64 [B]: 64-bit integers unchanged, names hashed.

    Args: labels: tensor, array or list of whole numbers, strings, bytes or objects with a unique `str`.
    Errors: ValueError for numbers that are not whole, None, and floating tensors, whose values would be awaited.
    Source: formulas, section 3.
    """
    if is_tensor(labels) and dtype_kind(labels) == "f":
        raise ValueError(f"group_ids has dtype {labels.dtype}; expected whole numbers: pass group_ids.long()")
    if hasattr(labels, "dtype") and dtype_kind(labels) == "i" and not str(labels.dtype).endswith("uint64"):
        array = to_computable(labels, device)
        return array.long() if is_tensor(array) else array.astype(np.int64, copy=False)
    values = labels.tolist() if hasattr(labels, "tolist") else labels
    return to_computable(np.array([_label(value) for value in values], dtype=np.int64), device)


def _label(value: Any) -> int:
    is_number = isinstance(value, Number)
    if value is None or (is_number and (isinstance(value, complex) or value % 1 != 0)):
        raise ValueError(f"group_ids has {value!r}; expected whole numbers, or names, one for each prompt")
    if is_number and INT64.min <= (number := int(value)) <= INT64.max:
        return number
    name = value if isinstance(value, bytes) else str(value).encode(errors="surrogatepass")
    return int.from_bytes(blake2b(name).digest()[:8], "little", signed=True)


FINISH_REASONS = ("stop", "length", "abort", "other")
"""Why a response ended: by itself, at the length limit, because it was aborted, or for any other reason."""
_PLACES = {
    **dict.fromkeys(("stop", "eos", "tool_calls", "function_call"), 0),
    **dict.fromkeys(("length", "max_tokens"), 1),
    **dict.fromkeys(("abort", "aborted"), 2),
}
"""The names of vLLM, SGLang and servers of OpenAI's protocol, with their place in `FINISH_REASONS`."""


def _finish_reason(given: Any) -> int:
    """Return the place of a reason in `FINISH_REASONS`, -1 for None; SGLang gives a mapping with its type."""
    name = given.get("type") if isinstance(given, Mapping) else given
    return -1 if name is None else _PLACES.get(str(name).lower(), len(FINISH_REASONS) - 1)


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

    def per_token(self, name: str, value: Any, *, kinds: str, or_sequence: bool = False) -> Array | None:
        """Return an argument with one number per token, [B, T], or per sequence, [B], where that is allowed.

        Values after the end of a sequence are undefined.
        """
        if value is None:
            return None
        shapes = [self.shape[:1]] if or_sequence else []
        if not self.layout.is_packed:
            return self._check(name, self._padded(name, value), [*shapes, self.shape], kinds)
        lengths = list(self.layout.lengths or ())
        flat = argument_to_computable(name, value, self.device)
        array = self._check(name, flat, [*shapes, (sum(lengths),)], kinds)
        # If there are as many sequences as tokens, the values are per sequence.
        return array if or_sequence and len(array) == self.shape[0] else pad_packed(array, lengths=lengths)

    def _padded(self, name: str, value: Any) -> Array:
        if self.layout.lengths is None or not is_ragged(value):
            return argument_to_computable(name, value, self.device)
        return pad_rows(name, to_rows(name, value, self.device), like=(self.like, list(self.layout.lengths)))

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

    def finish_reasons(self, value: Any) -> Array | None:
        """Return the reasons why responses ended as places in `FINISH_REASONS`, int64 [B]."""
        if value is None:
            return None
        n = None if isinstance(value, str) or not hasattr(value, "__len__") else len(value)
        if n != self.shape[0]:
            given = type(value).__name__ if n is None else f"of length {n}"
            raise ValueError(f"finish_reasons is {given}; expected {self.shape[0]} texts, one for each sequence")
        return to_computable(np.array([_finish_reason(one) for one in value], np.int64), self.device)

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


MAX_TURNS = 1 << 19
"""The most turns of one call: the table of more would be too large for a report."""


@dataclass(frozen=True, slots=True)
class TurnInputs:
    """The turn of each token: `ids` [B, T] on the device of the mask, negative where a token is of no turn.

    `n_turns` holds the number of turns of each sequence, numpy int64 [B].
    """

    ids: Array
    n_turns: Array

    def mapped(self, change: Callable[[Array], Array]) -> TurnInputs:
        """Return the turns with a function applied to each array."""
        return TurnInputs(change(self.ids), change(self.n_turns))

    @property
    def n_total(self) -> int:
        """The number of turns of all sequences, R."""
        return int(self.n_turns.sum())

    def rows(self) -> Array:
        """Return the row of each token's turn among the R turns of the batch, int64 [B, T]; R where it is of none."""
        device = self.ids.device if is_tensor(self.ids) else None
        before = to_computable(self.n_turns.cumsum() - self.n_turns, device)
        return functions_of(self.ids).where(self.ids >= 0, before[:, None] + self.ids, self.n_total)


def read_turns(optional: OptionalInputs, *, turn_ids: Any, turn_offsets: Any, mask: Array) -> TurnInputs | None:
    """Return the turns of the sequences; None if neither argument is given.

    Args: turn_ids: integers in the form of the log-probs; turns count from 0 in each sequence, and a token with a
    negative id is of none; on a device they are awaited. turn_offsets: B lists of the positions at which turns start,
    on the host. mask: bool [B, T]; ids where it is unset have no effect.
    Errors: ValueError naming the argument and what was expected.
    """
    if turn_offsets is not None and turn_ids is not None:
        raise ValueError("turn_ids and turn_offsets are both given; expected one of them")
    if turn_offsets is not None:
        return _of_offsets(turn_offsets, optional)
    if turn_ids is None:
        return None
    functions = functions_of(mask)
    ids = functions.where(mask, functions.cast(optional.per_token("turn_ids", turn_ids, kinds="i"), "i8"), -1)
    n_turns = np.zeros(ids.shape[0], np.int64)
    if ids.shape[1]:  # the largest id of each sequence, for which a device is awaited
        n_turns = np.maximum(to_computable(functions.max(ids, -1), None).astype(np.int64), -1) + 1
    _check_number("turn_ids", n_turns)
    return TurnInputs(ids, n_turns)


def _of_offsets(turn_offsets: Any, optional: OptionalInputs) -> TurnInputs:
    n_sequences = optional.shape[0]
    if not isinstance(turn_offsets, Sequence) and getattr(turn_offsets, "ndim", 0) != 2:
        raise ValueError("turn_offsets must be a list with the starts of the turns of each sequence")
    if len(turn_offsets) != n_sequences:
        raise ValueError(f"turn_offsets has {len(turn_offsets)} sequences; expected {n_sequences} like {optional.like}")
    starts = [_starts(f"turn_offsets[{index}]", row) for index, row in enumerate(turn_offsets)]
    n_turns = np.array([len(row) for row in starts], np.int64)
    _check_number("turn_offsets", n_turns)
    horizon = optional.shape[1]
    # A start beyond the end is of a turn without tokens.
    positions = np.minimum(np.concatenate([np.zeros(0, np.int64), *starts]), horizon)
    begun = np.zeros((len(starts), horizon + 1), np.int32)
    np.add.at(begun, (np.repeat(np.arange(len(starts)), n_turns), positions), 1)
    ids = begun[:, :horizon].cumsum(1, dtype=np.int32) - 1
    return TurnInputs(to_computable(ids, optional.device), n_turns)


def _starts(name: str, given: Any) -> Array:
    row = argument_to_computable(name, given, None)
    if row.ndim == 1 and not len(row):
        return np.zeros(0, np.int64)
    if row.ndim != 1 or dtype_kind(row) != "i":
        raise ValueError(f"{name} has shape {row.shape} and dtype {row.dtype}; expected the positions of its turns")
    starts: Array = row.astype(np.int64)
    if starts[0] < 0 or (np.diff(starts) < 0).any():
        raise ValueError(f"{name} is {starts.tolist()}; expected positions from 0 that never decrease")
    return starts


def _check_number(name: str, n_turns: Array) -> None:
    # As floats: ids near 2**63 would overflow an integer sum.
    if n_turns.sum(dtype=np.float64) > MAX_TURNS:
        raise ValueError(f"{name} has turns up to {n_turns.max() - 1}; expected at most {MAX_TURNS} turns in a call")
