"""What one policy says of the tokens of a block: log-probs and probabilities."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from trmon_client.core.arrays import Array
from trmon_client.core.large.block import Block


@dataclass(frozen=True, slots=True)
class PolicyTerms:
    """Arrays are [rows, horizon], 0 at a token that is not valid."""

    logp: Array
    """float32"""
    bounded: Array
    """float32: log-probs, positive ones taken as 0; the same array where there is none."""
    p: Array
    """float64: probabilities. Their distance from 1, and their correlations, have no digits to lose."""
    sum_p: Array
    """[rows]"""
    sum_pp: Array
    """[rows]"""

    @classmethod
    def of(cls, block: Block, raw: Array, *, index: int) -> PolicyTerms:
        """Return the terms of a policy's log-probs, in the buffers of its index. Source: formulas, section 2."""
        spare = block.buffers.spare
        logp = block.kept(raw, out=block.buffers.logp[index])
        bounded = np.clip(logp, -np.inf, 0.0) if logp.max() > 0 else logp
        p = block.buffers.p[index]
        np.copyto(p, block.blanked(bounded, out=spare))
        np.exp(p, out=p)
        return cls(logp, bounded, p, block.sum(p), block.dot(p, p))
