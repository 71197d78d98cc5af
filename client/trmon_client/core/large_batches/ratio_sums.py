"""The columns computed from ratios and probabilities, in float64."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from trmon_client.core.arrays import NUMPY, Array
from trmon_client.core.inputs.checked_inputs import POLICIES
from trmon_client.core.large_batches.blocks import Block, BlockSums, ScratchBuffers
from trmon_client.core.reduction.sequences import HALF, NAMES
from trmon_client.core.reduction.token_terms import (
    MAX_ABS_EXPONENT,
    MIN_REST,
    NO_REST,
    RATIOS,
    TRUNCATION,
    pairs_of,
    rollout_pair,
)


@dataclass(frozen=True, slots=True)
class TokenProbabilities:
    """The probabilities of the tokens of a block under one policy."""

    p: Array
    """float64 [rows, horizon]: probabilities, 0 where not valid; 1 - p would lose digits in float32."""
    sum_p: Array
    """[rows]"""
    sum_pp: Array
    is_product: bool
    """Whether it is a multiple of another policy's probabilities, accurate to the last digit but one."""


@dataclass(slots=True)
class ProbabilityCache:
    """The probabilities of each policy of a block, computed on first use.

    Arguments named `logp` and `wide` are float64 buffers; `logp` holds the log-probs of the policy, `wide` is scratch.
    Both are overwritten.
    """

    block: Block
    memory: dict[str, Array]
    """Buffers for the probabilities, by the name of the log-probs."""
    computed: dict[str, TokenProbabilities] = field(default_factory=dict)

    def of(self, name: str, *, logp: Array) -> TokenProbabilities:
        """Return the probabilities of a policy, computed from its log-probs on first use."""
        return self.computed[name] if name in self.computed else self._exponential(name, logp)

    def difference(self, above: str, below: str, *, dev: Array, is_clamped: bool, wide: Array, out: Array) -> Array:
        """Return p - q in `out`, and cache p; q must be cached already."""
        if is_clamped or self._exceed_1(above, below):
            for name in (above, below):
                # Where two policies agree the difference must be exactly 0; a product can be off in the last digit.
                if name not in self.computed or self.computed[name].is_product:
                    np.copyto(wide, self.block.logp[name])
                    self._exponential(name, wide)
            return np.subtract(self.computed[above].p, self.computed[below].p, out=out)
        q = self.computed[below].p
        np.multiply(q, dev, out=out)
        if above not in self.computed:
            self._add(above, np.add(q, out, out=self.memory[above]), is_product=True)
        return out

    def bounded(self, d: Array, above: str, below: str, *, wide: Array) -> Array:
        """Return log p - log q with positive log-probs taken as 0, in place of d."""
        if self._exceed_1(above, below):
            np.copyto(d, self.block.logp[above])
            np.copyto(wide, self.block.logp[below])
            np.subtract(self._at_most_0(above, d), self._at_most_0(below, wide), out=d)
        return d

    def _exceed_1(self, *names: str) -> bool:
        """Return whether a log-prob of these policies is positive, which rounding can cause."""
        return any(self.block.highest[name] > 0.0 for name in names)

    def _at_most_0(self, name: str, logp: Array) -> Array:
        return np.clip(logp, -np.inf, 0.0, out=logp) if self._exceed_1(name) else logp

    def _exponential(self, name: str, logp: Array) -> TokenProbabilities:
        p = np.exp(self._at_most_0(name, logp), out=self.memory[name])
        if self.block.invalid is not None:
            np.copyto(p, 0.0, where=self.block.invalid)
        return self._add(name, p, is_product=False)

    def _add(self, name: str, p: Array, *, is_product: bool) -> TokenProbabilities:
        self.computed[name] = TokenProbabilities(p, NUMPY.sum(p, -1), NUMPY.sum_product(p, p, -1), is_product)
        return self.computed[name]


def binary_kl(p: Array, q: Array, d: Array, *, wide: Array, out: Array, flags: Array) -> Array:
    """Return KL(q||p) of {the token, the rest} in `out`; rounding may leave it slightly below 0.

    Args: d: log p - log q; d, wide and the bool array flags are overwritten.
    Source: formulas, section 4.
    """
    rest_below, kl = np.subtract(1.0, q, out=wide), np.subtract(1.0, p, out=out)
    np.clip(kl, MIN_REST, np.inf, out=kl)
    np.log(np.divide(rest_below, kl, out=kl), out=kl)
    kl *= rest_below
    token_term = np.multiply(q, d, out=d)
    kl -= token_term
    # Indexed rather than masked: these tokens are scattered, and a branch per token is mispredicted.
    certain = np.flatnonzero(np.less_equal(rest_below, NO_REST, out=flags))
    if len(certain):
        rest = np.maximum(1.0 - p.reshape(-1)[certain], MIN_REST)
        kl.reshape(-1)[certain] = np.maximum(-rest - token_term.reshape(-1)[certain], 0.0)
    return kl


MIN_MEAN_SQ_RATIO = 1e-6
"""Below it a mean of rho^2 loses digits when computed from the sums of rho - 1 and (rho - 1)^2."""


class _Terms(NamedTuple):
    """Scratch buffers [rows, horizon]: `single` is float32, `flags` is bool, the others are float64."""

    d: Array
    dev: Array
    wide: Array
    rest: Array
    single: Array
    flags: Array


def ratio_sums(block: Block, scratch: ScratchBuffers) -> BlockSums:
    """Return the columns of rho, p and q, and the sum of d. Source: formulas, section 3."""
    shape, n_policies = block.valid.shape, len(block.logp)
    d, dev, wide, rest, mismatch_dev, *p = scratch.buffers("terms", "f8", 5 + n_policies, shape)
    (single,), (flags,) = (scratch.buffers("terms", dtype, 1, shape) for dtype in ("f4", "?"))
    terms = _Terms(d, dev, wide, rest, single, flags)
    policies = ProbabilityCache(block, dict(zip(block.logp, p, strict=True)))
    found: dict[str, Array] = {}
    pairs = pairs_of(block.logp)
    for pair in pairs:
        # Keep rho - 1 of mismatch for the comparison with total.
        pair_terms = terms._replace(dev=mismatch_dev) if pair == "mismatch" and n_policies == len(POLICIES) else terms
        by_stem = _pair_columns(block, policies, *RATIOS[pair], terms=pair_terms)
        n_half = by_stem.pop("n_prob_diff_half")
        if pair == rollout_pair(pairs):
            found["n_prob_diff_half"] = n_half
        found |= {NAMES[pair][stem]: array for stem, array in by_stem.items()}
    if n_policies == len(POLICIES):
        difference = np.subtract(dev, mismatch_dev, out=rest)
        found["sum_abs_is_dev"] = NUMPY.sum(np.abs(difference, out=difference), -1)
    return BlockSums(block.rows, found)


def _pair_columns(
    block: Block, policies: ProbabilityCache, above: str, below: str, *, terms: _Terms
) -> dict[str, Array]:
    """Return the columns of the pair by stem, [rows]; `dev` holds rho - 1 afterwards."""
    d, dev, wide, _, single, flags = terms
    np.copyto(d, block.logp[above])
    np.copyto(wide, block.logp[below])
    d -= wide
    highest = d.max()
    is_clamped = bool(highest > MAX_ABS_EXPONENT or d.min() < -MAX_ABS_EXPONENT)
    found = {"sum_d": NUMPY.sum(d, -1), "max_k3": np.full(len(d), np.nan)}
    if is_clamped:
        np.expm1(np.clip(d, -MAX_ABS_EXPONENT, MAX_ABS_EXPONENT, out=dev), out=dev)
        found["max_k3"] = NUMPY.max(np.subtract(dev, d, out=terms.rest), -1)
    else:
        np.expm1(d, out=dev)
    found |= _ratio_columns(block, terms, is_truncated=bool(highest > math.log(TRUNCATION)))
    q = policies.of(below, logp=wide)
    diff = policies.difference(above, below, dev=dev, is_clamped=is_clamped, wide=wide, out=terms.rest)
    p = policies.of(above, logp=wide)
    np.copyto(single, diff, casting="same_kind")
    np.abs(single, out=single)
    largest = NUMPY.max(single, -1)
    n_half = NUMPY.count(np.abs(diff) > HALF, -1) if largest.max() >= HALF else np.zeros(len(d), np.int64)
    kl = binary_kl(p.p, q.p, policies.bounded(d, above, below, wide=wide), wide=wide, out=terms.rest, flags=flags)
    return found | {
        "max_prob_diff": largest,
        "n_prob_diff_half": n_half,
        "sum_prob_diff": NUMPY.sum(single, -1),
        "sum_sq_prob_diff": NUMPY.sum_product(single, single, -1),
        "sum_p": p.sum_p,
        "sum_q": q.sum_p,
        "sum_pp": p.sum_pp,
        "sum_qq": q.sum_pp,
        "sum_pq": NUMPY.sum_product(p.p, q.p, -1),
        "sum_binary_kl": NUMPY.sum(kl, -1),
        "max_binary_kl": NUMPY.max(kl, -1),
    }


def _ratio_columns(block: Block, terms: _Terms, *, is_truncated: bool) -> dict[str, Array]:
    dev, single, n = terms.dev, terms.single, block.n_tokens
    sum_dev, sum_sq_dev = NUMPY.sum(dev, -1), NUMPY.sum_product(dev, dev, -1)
    np.copyto(single, dev, casting="same_kind")
    sum_deficit = -NUMPY.sum(np.clip(single, -np.inf, 0.0, out=single), -1)
    sum_rho, sum_sq_rho = n + sum_dev, n + 2.0 * sum_dev + sum_sq_dev
    if is_truncated or (sum_sq_rho < MIN_MEAN_SQ_RATIO * n).any():
        rho = np.clip(dev, -np.inf, TRUNCATION - 1.0, out=terms.rest)
        rho += 1.0
        if block.invalid is not None:
            np.copyto(rho, 0.0, where=block.invalid)
        sum_rho, sum_sq_rho = NUMPY.sum(rho, -1), NUMPY.sum_product(rho, rho, -1)
    return {
        "sum_ratio_dev": sum_dev,
        "sum_sq_ratio_dev": sum_sq_dev,
        "sum_ratio_deficit": sum_deficit,
        "sum_trunc_ratio": sum_rho,
        "sum_sq_trunc_ratio": sum_sq_rho,
    }
