"""The blocks of a large batch: sequences of similar length, their valid tokens, and reusable memory for their terms."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from trmon_client.core.arrays import DOT_LENGTH, NUMPY, Array
from trmon_client.core.column_schema import Pair
from trmon_client.core.inputs.checked_inputs import MAX_LOGPROB, MIN_LOGPROB, CheckedInputs, valid_tokens


@dataclass(frozen=True, slots=True)
class BlockSums:
    """The sums of a block: columns by name, [rows], before `finish_columns` completes them; histograms by pair."""

    rows: slice | Array
    """The sequences of the batch in this block, as in `RowBlock.rows`."""
    by_name: dict[str, Array]
    histograms: dict[Pair, Array] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Block:
    """The valid tokens of a block and their log-probs, in arrays [rows, horizon] or [rows]."""

    rows: slice | Array
    """As in `RowBlock.rows`."""
    inputs: CheckedInputs
    """The arguments of these sequences, up to the horizon."""
    valid: Array
    """bool: the token counts and is not invalid."""
    invalid: Array | None
    """bool: the complement of `valid`; None if all tokens are valid."""
    n_counted: Array
    """int64 [rows]: the number of counting tokens."""
    n_tokens: Array
    """int64 [rows]: the number of valid tokens."""
    logp: dict[str, Array]
    """float32 by argument name, 0 where not valid."""
    highest: dict[str, float]
    """The largest log-prob, by argument name."""

    @classmethod
    def of(cls, whole: CheckedInputs, row_block: RowBlock, scratch: ScratchBuffers) -> Block:
        """Return the tokens of a block; log-probs that must be modified lie in the "logp" buffers.

        Source: formulas, section 2.
        """
        inputs = row_block.of(whole)
        highest = {name: raw.max() for name, raw in inputs.logprobs.items()}
        # NaN propagates through min and max and fails every comparison.
        is_sound = all(
            highest[name] <= MAX_LOGPROB and raw.min() > MIN_LOGPROB for name, raw in inputs.logprobs.items()
        )
        valid = inputs.mask if is_sound else valid_tokens(inputs)
        n_tokens = _count_per_row(valid)
        n_counted = n_tokens if is_sound else _count_per_row(inputs.mask)
        buffers = scratch.buffers("logp", "f4", len(inputs.logprobs), valid.shape)
        logp = dict(zip(inputs.logprobs, buffers, strict=True))
        invalid = None if n_tokens.sum() == valid.size else ~valid
        if invalid is None:
            logp = {name: _as_float32(raw, out=logp[name]) for name, raw in inputs.logprobs.items()}
        else:
            for name, raw in inputs.logprobs.items():
                np.copyto(logp[name], raw)
                np.copyto(logp[name], 0.0, where=invalid)
            highest = {name: of_policy.max() for name, of_policy in logp.items()}
        return cls(row_block.rows, inputs, valid, invalid, n_counted, n_tokens, logp, highest)

    @property
    def is_partly_valid(self) -> Array:
        """bool [rows]: the row has valid and other tokens."""
        return (self.n_tokens > 0) & (self.n_tokens < self.valid.shape[1])

    def extremes(self, terms: Array) -> tuple[Array, Array]:
        """Return the smallest and the largest valid term of each row; `terms` is not modified."""
        extremes = []
        for reduce, neutral in ((NUMPY.min, np.inf), (NUMPY.max, -np.inf)):
            masked = terms.copy()
            if self.invalid is not None:
                np.copyto(masked, neutral, where=self.invalid)
            extremes.append(reduce(masked, -1))
        return extremes[0], extremes[1]


def _count_per_row(flags: Array) -> Array:
    return np.full(len(flags), flags.shape[1]) if flags.all() else NUMPY.count(flags, -1)


def _as_float32(raw: Array, *, out: Array) -> Array:
    """Return the terms as aligned float32, converted into `out` if necessary, so that no later step converts them."""
    if raw.dtype == np.float32 and raw.flags.aligned:
        return raw
    np.copyto(out, raw)
    return out


@dataclass(frozen=True, slots=True)
class RowBlock:
    """Some sequences of a batch and the position after which none of their tokens counts."""

    rows: slice | Array
    """A slice if the sequences are adjacent, else int64 [rows]."""
    horizon: int

    @classmethod
    def whole(cls, mask: Array) -> RowBlock:
        """Return the block of all sequences."""
        n_sequences, width = mask.shape
        n_unused = int(mask.any(0)[::-1].argmax())
        return cls(slice(0, n_sequences), min(width, -(-(width - n_unused) // DOT_LENGTH) * DOT_LENGTH))

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
        # The position after which no token of a sequence counts: a multiple of DOT_LENGTH, or the end.
        horizon = mask.shape[1]
        pieces = np.logical_or.reduceat(mask, np.arange(0, horizon, DOT_LENGTH), axis=1)
        n_unused = np.where(pieces.any(-1), pieces[:, ::-1].argmax(-1), pieces.shape[1] - 1)
        horizons = np.minimum((pieces.shape[1] - n_unused) * DOT_LENGTH, horizon)
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


def _blocks_of_similar_length(horizons: Array, rows: Array, *, max_tokens: int) -> Iterator[RowBlock]:
    start = 0
    while start < len(rows):
        horizon = int(horizons[start])
        picked = rows[start : start + max(1, max_tokens // horizon)]
        first, n_rows = int(picked[0]), len(picked)
        is_adjacent = np.array_equal(picked, np.arange(first, first + n_rows))
        yield RowBlock(slice(first, first + n_rows) if is_adjacent else picked, horizon)
        start += n_rows


_LOCAL = threading.local()


class ScratchBuffers:
    """The buffers of one thread: allocating memory for every term would cost as much as the arithmetic."""

    def __init__(self) -> None:
        self._memory: dict[tuple[str, str], Array] = {}

    @classmethod
    def of_thread(cls, n: int) -> list[ScratchBuffers]:
        """Return n instances that belong to the calling thread, for itself and its helper threads."""
        kept: list[ScratchBuffers] = getattr(_LOCAL, "scratches", [])
        _LOCAL.scratches = kept = kept + [cls() for _ in range(n - len(kept))]
        return kept[:n]

    def buffers(self, use: str, dtype: str, n: int, shape: tuple[int, int]) -> Array:
        """Return n contiguous, uninitialised buffers of a shape; the same use and dtype give the same memory."""
        size = n * shape[0] * shape[1]
        memory = self._memory.get((use, dtype))
        if memory is None or len(memory) < size:
            self._memory[use, dtype] = memory = np.empty(size, dtype)
        return memory[:size].reshape(n, *shape)
