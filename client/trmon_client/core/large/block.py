"""The tokens of a block of a large batch, and the reductions over them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from trmon_client.core.arrays import NUMPY, Array
from trmon_client.core.inputs import Inputs
from trmon_client.core.large.scratch import Buffers
from trmon_client.core.validity import valid_tokens


@dataclass(frozen=True, slots=True)
class Block:
    """Which tokens are valid, and what moves the others out of the way; arrays are [rows, horizon], or [rows]."""

    buffers: Buffers
    counts: Array
    """bool: the mask."""
    valid: Array
    """bool: counts and is not invalid."""
    n_tokens: Array
    """int64 [rows]: how many are valid."""
    weight: Array | None
    """float32: 1 where valid, else 0; None: all are valid."""
    away: Array | None
    """float32: 0 where valid, else infinite; None: all are valid."""

    @classmethod
    def of(cls, inputs: Inputs, buffers: Buffers) -> Block:
        """Return the tokens of a block. Source: formulas, section 2."""
        valid = valid_tokens(inputs)
        n_tokens = NUMPY.count(valid, -1)
        if n_tokens.sum() == valid.size:
            return cls(buffers, inputs.mask, valid, n_tokens, None, None)
        np.copyto(buffers.weight, valid)
        away = np.divide(np.float32(1.0), buffers.weight, out=buffers.away)
        away -= np.float32(1.0)
        return cls(buffers, inputs.mask, valid, n_tokens, buffers.weight, away)

    def kept(self, raw: Array, *, out: Array) -> Array:
        """Return float32 terms, 0 where not valid, whatever they hold there, in `out` if they must be changed."""
        if self.weight is None and raw.dtype == np.float32 and raw.flags.aligned:
            return raw
        np.copyto(out, raw)
        if self.weight is not None:
            # The bits of 0 are 0: no NaN withstands that, as it would a product.
            bits = np.negative(self.valid.view(np.int8), out=self.buffers.bits, dtype=np.int32)
            np.bitwise_and(out.view(np.int32), bits, out=out.view(np.int32))
        return out

    def blanked(self, terms: Array, *, out: Array) -> Array:
        """Return float32 terms with -inf where not valid, in `out`; the terms themselves where all are valid."""
        return terms if self.away is None else np.subtract(terms, self.away, out=out)

    def min(self, terms: Array, *, out: Array) -> Array:
        """Return the least valid term of every row, +inf where there is none; `out` may be overwritten."""
        return (terms if self.away is None else np.add(terms, self.away, out=out)).min(-1)

    def max(self, terms: Array, *, out: Array) -> Array:
        """Return the largest valid term of every row, -inf where there is none; `out` may be overwritten."""
        return self.blanked(terms, out=out).max(-1)

    def largest(self, terms: Array) -> Array:
        """Return the same of terms that are never negative, and 0 where not valid."""
        return np.where(self.n_tokens > 0, terms.max(-1), -np.inf)

    @staticmethod
    def sum(terms: Array) -> Array:
        """Return the sum of every row."""
        return NUMPY.sum(terms, -1)

    @staticmethod
    def dot(left: Array, right: Array) -> Array:
        """Return the sum of products of every row."""
        return NUMPY.sum_product(left, right, -1)

    @staticmethod
    def count(flags: Array) -> Array:
        """Return how many are set in every row."""
        return NUMPY.count(flags, -1)
