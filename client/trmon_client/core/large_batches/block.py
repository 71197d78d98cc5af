"""The tokens of a block of a large batch."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from trmon_client.core.arrays.backend import NUMPY, Array
from trmon_client.core.columns.schema import Pair
from trmon_client.core.inputs.checked_inputs import CheckedInputs
from trmon_client.core.inputs.token_validity import MAX_LOGPROB, MIN_LOGPROB, valid_tokens


@dataclass(frozen=True, slots=True)
class BlockSums:
    """What a block adds up to: columns by name, [rows], but for what `finish` makes of them; histograms by pair."""

    rows: slice | Array
    """Which sequences of the batch these are, as a portion has it."""
    by_name: dict[str, Array]
    histograms: dict[Pair, Array] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Block:
    """Which tokens are valid, and their log-probs; arrays are [rows, horizon], or [rows]."""

    valid: Array
    """bool: counts and is not invalid."""
    invalid: Array | None
    """bool: the others; None: there are none."""
    n_counted: Array
    """int64 [rows]: how many count."""
    n_tokens: Array
    """int64 [rows]: how many are valid."""
    logp: dict[str, Array]
    """float32 by argument name, 0 where not valid."""
    highest: dict[str, float]
    """The highest of each."""

    @classmethod
    def of(cls, inputs: CheckedInputs, *, buffers: Array) -> Block:
        """Return the tokens of a block.

        Args: buffers: float32 [policies, rows, horizon], for log-probs that have to be changed.
        Source: formulas, section 2.
        """
        highest = {name: raw.max() for name, raw in inputs.logprobs.items()}
        # NaN passes through an extreme, and fails every comparison.
        is_sound = all(
            highest[name] <= MAX_LOGPROB and raw.min() > MIN_LOGPROB for name, raw in inputs.logprobs.items()
        )
        valid = inputs.mask if is_sound else valid_tokens(inputs)
        n_tokens = _counted(valid)
        n_counted = n_tokens if is_sound else _counted(inputs.mask)
        memory = dict(zip(inputs.logprobs, buffers, strict=True))
        if n_tokens.sum() == valid.size:
            logp = {name: _usable(raw, out=memory[name]) for name, raw in inputs.logprobs.items()}
            return cls(valid, None, n_counted, n_tokens, logp, highest)
        invalid = ~valid
        for name, raw in inputs.logprobs.items():
            np.copyto(memory[name], raw)
            np.copyto(memory[name], 0.0, where=invalid)
        return cls(valid, invalid, n_counted, n_tokens, memory, {name: logp.max() for name, logp in memory.items()})

    @property
    def is_partly_valid(self) -> Array:
        """bool [rows]: some tokens are valid, and some are not."""
        return (self.n_tokens > 0) & (self.n_tokens < self.valid.shape[1])

    def extremes(self, terms: Array) -> tuple[Array, Array]:
        """Return the least and the largest valid term of each row; `terms` is not overwritten."""
        found = []
        for reduce, end in ((NUMPY.min, np.inf), (NUMPY.max, -np.inf)):
            kept = terms.copy()
            if self.invalid is not None:
                np.copyto(kept, end, where=self.invalid)
            found.append(reduce(kept, -1))
        return found[0], found[1]


def _counted(flags: Array) -> Array:
    return np.full(len(flags), flags.shape[1]) if flags.all() else NUMPY.count(flags, -1)


def _usable(raw: Array, *, out: Array) -> Array:
    """Return float32 terms, in `out` if the arithmetic would have to convert them at every step."""
    if raw.dtype == np.float32 and raw.flags.aligned:
        return raw
    np.copyto(out, raw)
    return out
