"""The probabilities that the policies of a block give each token, and the binary KL of a pair of them."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from trmon_client.core.arrays.backend import NUMPY, Array
from trmon_client.core.large_batches.block import Block
from trmon_client.core.reduction.kl_estimators import MIN_REST, NO_REST


@dataclass(frozen=True, slots=True)
class TokenProbabilities:
    """What one policy says of the tokens of a block."""

    p: Array
    """float64 [rows, horizon]: probabilities, 0 where not valid. What is made of them has no digits to lose."""
    sum_p: Array
    """[rows]"""
    sum_pp: Array
    is_product: bool
    """Whether it was found from another policy's: to the last digit but one."""


@dataclass(slots=True)
class ProbabilityCache:
    """The policies of a block, each computed when the first pair asks for it.

    Arguments named `logp` and `wide` are float64 buffers; the former hold the log-probs of the policy in question, the
    latter anything. Both are overwritten.
    """

    block: Block
    memory: dict[str, Array]
    """Buffers for the probabilities, by the name of the log-probs."""
    known: dict[str, TokenProbabilities] = field(default_factory=dict)

    def of(self, name: str, *, logp: Array) -> TokenProbabilities:
        """Return a policy, by the exponential of its log-probs unless it is known."""
        return self.known[name] if name in self.known else self._exponential(name, logp)

    def difference(self, above: str, below: str, *, dev: Array, is_clamped: bool, wide: Array, out: Array) -> Array:
        """Return p - q, in `out`, where q is known; then p is, too."""
        if is_clamped or self._exceed_1(above, below):
            for name in (above, below):
                # Policies that agree on a token differ by 0 there, which products would miss by the last digit.
                if name not in self.known or self.known[name].is_product:
                    np.copyto(wide, self.block.logp[name])
                    self._exponential(name, wide)
            return np.subtract(self.known[above].p, self.known[below].p, out=out)
        q = self.known[below].p
        np.multiply(q, dev, out=out)
        if above not in self.known:
            self._learn(above, np.add(q, out, out=self.memory[above]), is_product=True)
        return out

    def bounded(self, d: Array, above: str, below: str, *, wide: Array) -> Array:
        """Return log p - log q, positive log-probs taken as 0, in the place of d."""
        if self._exceed_1(above, below):
            np.copyto(d, self.block.logp[above])
            np.copyto(wide, self.block.logp[below])
            np.subtract(self._at_most_0(above, d), self._at_most_0(below, wide), out=d)
        return d

    def _exceed_1(self, *names: str) -> bool:
        """Return whether rounding made some log-prob of these policies positive."""
        return any(self.block.highest[name] > 0.0 for name in names)

    def _at_most_0(self, name: str, logp: Array) -> Array:
        return np.clip(logp, -np.inf, 0.0, out=logp) if self._exceed_1(name) else logp

    def _exponential(self, name: str, logp: Array) -> TokenProbabilities:
        p = np.exp(self._at_most_0(name, logp), out=self.memory[name])
        if self.block.invalid is not None:
            np.copyto(p, 0.0, where=self.block.invalid)
        return self._learn(name, p, is_product=False)

    def _learn(self, name: str, p: Array, *, is_product: bool) -> TokenProbabilities:
        self.known[name] = TokenProbabilities(p, NUMPY.sum(p, -1), NUMPY.sum_product(p, p, -1), is_product)
        return self.known[name]


def binary_kl(p: Array, q: Array, d: Array, *, wide: Array, out: Array, flags: Array) -> Array:
    """Return KL(q||p) of {the token, the rest}, in `out`; rounding may leave it a little below 0.

    Args: d: log p - log q; d, wide and flags, bool, are overwritten.
    Source: formulas, section 4.
    """
    rest_below, kl = np.subtract(1.0, q, out=wide), np.subtract(1.0, p, out=out)
    np.clip(kl, MIN_REST, np.inf, out=kl)
    np.log(np.divide(rest_below, kl, out=kl), out=kl)
    kl *= rest_below
    gained = np.multiply(q, d, out=d)
    kl -= gained
    # Few or many, at random places: looked up, for a condition at every token would be guessed wrong.
    certain = np.flatnonzero(np.less_equal(rest_below, NO_REST, out=flags))
    if len(certain):
        rest = np.maximum(1.0 - p.reshape(-1)[certain], MIN_REST)
        kl.reshape(-1)[certain] = np.maximum(-rest - gained.reshape(-1)[certain], 0.0)
    return kl
