"""The turns of the sequences: which turn each token is of, given by ids or by the positions at which turns start."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from trmon_client.core.arrays.backend import Array, functions_of, is_tensor
from trmon_client.core.arrays.conversion import argument_to_computable, dtype_kind, to_computable
from trmon_client.core.inputs.optional_inputs import OptionalInputs

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
    return None if turn_ids is None else _of_ids(turn_ids, optional, mask=mask)


def _of_ids(turn_ids: Any, optional: OptionalInputs, *, mask: Array) -> TurnInputs:
    functions = functions_of(mask)
    ids = functions.where(mask, functions.cast(optional.of_tokens("turn_ids", turn_ids, kinds="i"), "i8"), -1)
    n_turns = np.maximum(_last_ids(ids), -1) + 1
    _check_number("turn_ids", n_turns)
    return TurnInputs(ids, n_turns)


def _last_ids(ids: Array) -> Array:
    """Return the largest id of each sequence, numpy int64 [B]; waits for a device."""
    if not ids.shape[1]:
        return np.full(ids.shape[0], -1)
    return to_computable(functions_of(ids).max(ids, -1), None).astype(np.int64)


def _of_offsets(turn_offsets: Any, optional: OptionalInputs) -> TurnInputs:
    starts = _rows_of_starts(turn_offsets, n_sequences=optional.shape[0], like=optional.like)
    n_turns = np.array([len(row) for row in starts], np.int64)
    _check_number("turn_offsets", n_turns)
    horizon = optional.shape[1]
    # A start beyond the end is of a turn without tokens.
    positions = np.minimum(np.concatenate([np.zeros(0, np.int64), *starts]), horizon)
    begun = np.zeros((len(starts), horizon + 1), np.int32)
    np.add.at(begun, (np.repeat(np.arange(len(starts)), n_turns), positions), 1)
    ids = begun[:, :horizon].cumsum(1, dtype=np.int32) - 1
    return TurnInputs(to_computable(ids, optional.device), n_turns)


def _rows_of_starts(turn_offsets: Any, *, n_sequences: int, like: str) -> list[Array]:
    """Return the starts of each sequence's turns, int64. Errors: ValueError naming the sequence that is wrong."""
    if not isinstance(turn_offsets, Sequence) and getattr(turn_offsets, "ndim", 0) != 2:
        raise ValueError("turn_offsets must be a list with the starts of the turns of each sequence")
    if len(turn_offsets) != n_sequences:
        raise ValueError(f"turn_offsets has {len(turn_offsets)} sequences; expected {n_sequences} like {like}")
    return [_starts(f"turn_offsets[{index}]", row) for index, row in enumerate(turn_offsets)]


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
