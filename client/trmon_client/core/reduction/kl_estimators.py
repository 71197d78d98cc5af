"""The ratios of every pair of policies at every token: d, rho - 1, k3 and the binary KL.

Arrays are [pairs, ...] as in `tokens`. Terms are exactly 0 at a token that is not valid.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from trmon_client.core.arrays.backend import Array, Arrays
from trmon_client.core.columns.schema import PAIRS, Pair
from trmon_client.core.reduction.token_block import TokenBlock

RATIOS: dict[Pair, tuple[str, str]] = {
    "mismatch": ("old_logprobs", "rollout_logprobs"),
    "staleness": ("logprobs", "old_logprobs"),
    "total": ("logprobs", "rollout_logprobs"),
}
"""Numerator and denominator of each pair."""

MAX_ABS_EXPONENT = 20.0
"""d is clamped to it inside exponentials only."""
BAND_LOW, BAND_HIGH, TRUNCATION = 0.5, 5.0, 2.0
"""The ratios beyond which IcePop drops and TIS truncates."""
MIN_REST = 1e-7
"""Floor of 1 - q against rounding."""
NO_REST = 1e-5
"""At or below it 1 - p counts as nothing, and the term of the rest as the least it can be."""
SERIES_BELOW = 1e-5
"""Below it |d| takes k3 from its series, 1e-11 accurate there; rho - 1 - d would lose digits as |d| shrinks."""


@dataclass(frozen=True)
class TokenRatios:
    """The terms of every token under every pair."""

    pairs: tuple[Pair, ...]
    p: Array
    """The numerator's probability."""
    q: Array
    """The denominator's probability."""
    d: Array
    """Log-ratio, never clamped."""
    dev: Array
    """rho - 1, d clamped."""
    k3: Array
    """rho - 1 - d."""
    binary_kl: Array
    """KL(denominator||numerator) of {the token, the rest}."""

    @classmethod
    def of(cls, tokens: TokenBlock) -> TokenRatios:
        """Return the ratios of all pairs whose two policies are given. Source: formulas, sections 1, 3 and 4."""
        xp = tokens.xp
        pairs = pairs_of(tokens.policies)
        above, below = ([tokens.policies.index(RATIOS[pair][side]) for pair in pairs] for side in (0, 1))
        p, q = xp.gather(tokens.p, above), xp.gather(tokens.p, below)
        d = xp.gather(tokens.logp, above) - xp.gather(tokens.logp, below)
        bounded_d = xp.gather(tokens.bounded, above) - xp.gather(tokens.bounded, below)
        rest = xp.at_least(1.0 - tokens.p, MIN_REST)
        log_rest = xp.log(rest)
        log_rest_ratio = xp.gather(log_rest, above) - xp.gather(log_rest, below)
        dev = xp.expm1(clamp_log_ratio(xp, d))
        rest_below = xp.gather(rest, below)
        rest_kl = xp.where(rest_below > NO_REST, -rest_below * log_rest_ratio, -xp.gather(rest, above))
        binary_kl = xp.at_least(rest_kl - q * bounded_d, 0.0)
        return cls(pairs, p, q, d, dev, k3(xp, d, dev), binary_kl)


def pairs_of(policies: Iterable[str]) -> tuple[Pair, ...]:
    """Return the pairs whose two policies are given. Source: formulas, section 1."""
    given = set(policies)
    return tuple(pair for pair in PAIRS if given.issuperset(RATIOS[pair]))


def clamp_log_ratio(xp: Arrays, d: Array) -> Array:
    """Return log-ratios within the range of exponentials. Source: formulas, section 2."""
    return xp.at_most(xp.at_least(d, -MAX_ABS_EXPONENT), MAX_ABS_EXPONENT)


def k3(xp: Arrays, d: Array, dev: Array) -> Array:
    """Return rho - 1 - d, accurate for any d.

    Args: dev: rho - 1, d clamped.
    Source: [K]; formulas, section 3.
    """
    series = d * d * (0.5 + d * (1 / 6))
    return xp.where(xp.abs(d) < SERIES_BELOW, series, dev - d)
