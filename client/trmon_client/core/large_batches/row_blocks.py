"""Splits a large batch into blocks of sequences of similar length, so that little padding is read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from trmon_client.core.arrays.backend import Array
from trmon_client.core.arrays.numpy_functions import DOT_LENGTH
from trmon_client.core.inputs.checked_inputs import CheckedInputs


@dataclass(frozen=True, slots=True)
class RowBlock:
    """Some sequences of a batch and the position after which none of their tokens counts."""

    rows: slice | Array
    """A slice if the sequences are adjacent, else int64 [rows]."""
    horizon: int

    def of(self, inputs: CheckedInputs) -> CheckedInputs:
        """Return the arguments of these sequences up to the horizon; views if the sequences are adjacent."""
        is_whole = (
            isinstance(self.rows, slice) and (self.rows.stop - self.rows.start, self.horizon) == inputs.mask.shape
        )
        if is_whole:
            return inputs
        return inputs.mapped(
            lambda array: array[self.rows] if array.ndim == 1 else array[self.rows, : self.horizon],
        )


def row_blocks(mask: Array, *sizes: int) -> list[list[RowBlock]]:
    """Return a partition of the batch for each size: blocks of at most `size` positions, or of one sequence.

    The longest sequences come first, so that the last blocks, for which one thread waits, are short.
    """
    n_sequences, horizon = mask.shape
    if not mask[:, -1].all():
        horizons = _horizons(mask)
        order = np.argsort(-horizons, kind="stable")
        return [list(_blocks_of_similar_length(horizons[order], order, max_tokens=size)) for size in sizes]
    strides = [max(1, size // horizon) for size in sizes]
    return [
        [RowBlock(slice(start, min(start + n, n_sequences)), horizon) for start in range(0, n_sequences, n)]
        for n in strides
    ]


def sequence_positions(rows: slice | Array) -> Array:
    """Return the positions of the sequences in the batch, int64 [rows]."""
    return np.arange(rows.start, rows.stop) if isinstance(rows, slice) else rows


def _horizons(mask: Array) -> Array:
    """Return the position after which no token of a sequence counts: a multiple of DOT_LENGTH, or the end, [B]."""
    horizon = mask.shape[1]
    pieces = np.logical_or.reduceat(mask, np.arange(0, horizon, DOT_LENGTH), axis=1)
    n_unused = np.where(pieces.any(-1), pieces[:, ::-1].argmax(-1), pieces.shape[1] - 1)
    return np.minimum((pieces.shape[1] - n_unused) * DOT_LENGTH, horizon)


def _blocks_of_similar_length(horizons: Array, rows: Array, *, max_tokens: int) -> Iterator[RowBlock]:
    start = 0
    while start < len(rows):
        horizon = int(horizons[start])
        picked = rows[start : start + max(1, max_tokens // horizon)]
        first, n_rows = int(picked[0]), len(picked)
        is_adjacent = np.array_equal(picked, np.arange(first, first + n_rows))
        yield RowBlock(slice(first, first + n_rows) if is_adjacent else picked, horizon)
        start += n_rows
