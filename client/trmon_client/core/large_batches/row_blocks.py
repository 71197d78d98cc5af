"""Which sequences of a large batch are reduced together: those of like length, so that padding is hardly touched."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from trmon_client.core.arrays.backend import PRODUCT, Array
from trmon_client.core.inputs.checked_inputs import CheckedInputs


@dataclass(frozen=True, slots=True)
class RowBlock:
    """Some sequences of a batch, and the positions behind which none of their tokens counts."""

    rows: slice | Array
    """A slice where they are neighbours, else int64 [rows]."""
    horizon: int

    def of(self, inputs: CheckedInputs) -> CheckedInputs:
        """Return the arguments of these sequences, of those positions; views where they are neighbours."""
        is_whole = (
            isinstance(self.rows, slice) and (self.rows.stop - self.rows.start, self.horizon) == inputs.mask.shape
        )
        if is_whole:
            return inputs
        return inputs.mapped(
            lambda array: array[self.rows] if array.ndim == 1 else array[self.rows, : self.horizon],
        )


def row_blocks(mask: Array, *sizes: int) -> list[list[RowBlock]]:
    """Return for each size portions of at most so many positions, one sequence at least, that together are the batch.

    The longest come first: what is left at the end, when one thread waits for the other, is short.
    """
    n_sequences, horizon = mask.shape
    if not mask[:, -1].all():
        horizons = _horizons(mask)
        order = np.argsort(-horizons, kind="stable")
        return [list(_portions(horizons[order], order, max_tokens=size)) for size in sizes]
    strides = [max(1, size // horizon) for size in sizes]
    return [
        [RowBlock(slice(start, min(start + n, n_sequences)), horizon) for start in range(0, n_sequences, n)]
        for n in strides
    ]


def sequence_positions(rows: slice | Array) -> Array:
    """Return the places of sequences in their batch, int64 [rows]."""
    return np.arange(rows.start, rows.stop) if isinstance(rows, slice) else rows


def _horizons(mask: Array) -> Array:
    """Return behind which position no token of each sequence counts, a multiple of PRODUCT or the end."""
    horizon = mask.shape[1]
    pieces = np.logical_or.reduceat(mask, np.arange(0, horizon, PRODUCT), axis=1)
    n_behind = np.where(pieces.any(-1), pieces[:, ::-1].argmax(-1), pieces.shape[1] - 1)
    return np.minimum((pieces.shape[1] - n_behind) * PRODUCT, horizon)


def _portions(horizons: Array, rows: Array, *, max_tokens: int) -> Iterator[RowBlock]:
    start = 0
    while start < len(rows):
        horizon = int(horizons[start])
        taken = rows[start : start + max(1, max_tokens // horizon)]
        first, n_rows = int(taken[0]), len(taken)
        are_neighbours = np.array_equal(taken, np.arange(first, first + n_rows))
        yield RowBlock(slice(first, first + n_rows) if are_neighbours else taken, horizon)
        start += n_rows
