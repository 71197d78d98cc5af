"""What is read from the probabilities that the two policies of a pair give each token."""

from __future__ import annotations

import numpy as np

from trmon_client.core.arrays import Array
from trmon_client.core.large.block import Block
from trmon_client.core.large.policy_terms import PolicyTerms
from trmon_client.core.ratios import MIN_REST, NO_REST


def probability_columns(block: Block, above: PolicyTerms, below: PolicyTerms) -> dict[str, Array]:
    """Return the pair's columns of p and q by stem, [rows], after `ratio.deviations`. Source: formulas, section 3.

    Args: above, below: of the numerator and of the denominator.
    """
    diff, wide = block.buffers.single, block.buffers.dev
    np.copyto(diff, np.subtract(above.p, below.p, out=wide), casting="same_kind")
    np.abs(diff, out=diff)
    kl = _binary_kl(block, above, below)
    return {
        "max_prob_diff": block.largest(diff),
        "sum_prob_diff": block.sum(diff),
        "sum_sq_prob_diff": block.dot(diff, diff),
        "sum_p": above.sum_p,
        "sum_q": below.sum_p,
        "sum_pp": above.sum_pp,
        "sum_qq": below.sum_pp,
        "sum_pq": block.dot(above.p, below.p),
        "sum_binary_kl": block.sum(kl),
        "max_binary_kl": block.largest(kl),
    }


def _binary_kl(block: Block, above: PolicyTerms, below: PolicyTerms) -> Array:
    """Return KL(below||above) of {the token, the rest}, in the buffer `dev`. Source: formulas, section 4."""
    gained, kl, rest = block.buffers.exact_d, block.buffers.dev, block.buffers.rest
    if above.bounded is not above.logp or below.bounded is not below.logp:
        np.copyto(gained, np.subtract(above.bounded, below.bounded, out=block.buffers.spare))
    gained *= below.p
    np.clip(np.subtract(1.0, above.p, out=rest), MIN_REST, np.inf, out=rest)
    rest_below = block.buffers.wide
    np.subtract(1.0, below.p, out=rest_below)
    np.log(np.divide(rest_below, rest, out=kl), out=kl)
    kl *= rest_below
    is_certain = np.less_equal(rest_below, NO_REST, out=block.buffers.flags)
    np.putmask(kl, is_certain, np.negative(rest, out=rest))
    kl -= gained
    return np.clip(kl, 0.0, np.inf, out=kl)
