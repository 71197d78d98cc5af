"""The tokens and the sums of one block of a large batch."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from trmon_client.core.arrays.backend import NUMPY, Array
from trmon_client.core.columns.schema import Pair
from trmon_client.core.inputs.checked_inputs import CheckedInputs
from trmon_client.core.inputs.token_validity import MAX_LOGPROB, MIN_LOGPROB, valid_tokens


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
    def of(cls, inputs: CheckedInputs, *, buffers: Array) -> Block:
        """Return the tokens of a block.

        Args: buffers: float32 [policies, rows, horizon], for log-probs that must be modified.
        Source: formulas, section 2.
        """
        highest = {name: raw.max() for name, raw in inputs.logprobs.items()}
        # NaN propagates through min and max and fails every comparison.
        is_sound = all(
            highest[name] <= MAX_LOGPROB and raw.min() > MIN_LOGPROB for name, raw in inputs.logprobs.items()
        )
        valid = inputs.mask if is_sound else valid_tokens(inputs)
        n_tokens = _count_per_row(valid)
        n_counted = n_tokens if is_sound else _count_per_row(inputs.mask)
        memory = dict(zip(inputs.logprobs, buffers, strict=True))
        if n_tokens.sum() == valid.size:
            logp = {name: _as_float32(raw, out=memory[name]) for name, raw in inputs.logprobs.items()}
            return cls(valid, None, n_counted, n_tokens, logp, highest)
        invalid = ~valid
        for name, raw in inputs.logprobs.items():
            np.copyto(memory[name], raw)
            np.copyto(memory[name], 0.0, where=invalid)
        return cls(valid, invalid, n_counted, n_tokens, memory, {name: logp.max() for name, logp in memory.items()})

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
