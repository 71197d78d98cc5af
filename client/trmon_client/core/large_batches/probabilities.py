"""The token probabilities of each policy of a block, and the binary KL of a pair of policies."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from trmon_client.core.arrays.backend import NUMPY, Array
from trmon_client.core.large_batches.block import Block
from trmon_client.core.reduction.kl_estimators import MIN_REST, NO_REST


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
