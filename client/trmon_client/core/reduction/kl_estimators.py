"""Computes d, rho - 1, k3 and the binary KL for each pair of policies at each token.

Arrays are [pairs, ...], laid out as in `TokenBlock`. Terms are exactly 0 at tokens that are not valid.
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
"""|d| is clamped to this inside exponentials only."""
BAND_LOW, BAND_HIGH, TRUNCATION = 0.5, 5.0, 2.0
"""The ratios outside which IcePop masks, and above which TIS truncates."""
MIN_REST = 1e-7
"""The floor of 1 - q, against rounding."""
NO_REST = 1e-5
"""At or below it 1 - p counts as 0, and the term of the rest takes its smallest value."""
SERIES_BELOW = 1e-5
"""Below it k3 is computed by its series, which is accurate to 1e-11; rho - 1 - d would lose digits."""


@dataclass(frozen=True)
class TokenRatios:
    """The terms of each token for each pair."""

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
        """Return the terms of all pairs whose two policies are given. Source: formulas, sections 1, 3 and 4."""
        xp = tokens.xp
        pairs = pairs_of(tokens.policies)
        numerators, denominators = ([tokens.policies.index(RATIOS[pair][side]) for pair in pairs] for side in (0, 1))
        p, q = xp.gather(tokens.p, numerators), xp.gather(tokens.p, denominators)
        d = xp.gather(tokens.logp, numerators) - xp.gather(tokens.logp, denominators)
        bounded_d = xp.gather(tokens.bounded, numerators) - xp.gather(tokens.bounded, denominators)
        rest = xp.at_least(1.0 - tokens.p, MIN_REST)
        log_rest = xp.log(rest)
        log_rest_ratio = xp.gather(log_rest, numerators) - xp.gather(log_rest, denominators)
        dev = xp.expm1(clamp_log_ratio(xp, d))
        denominator_rest = xp.gather(rest, denominators)
        rest_kl = xp.where(denominator_rest > NO_REST, -denominator_rest * log_rest_ratio, -xp.gather(rest, numerators))
        binary_kl = xp.at_least(rest_kl - q * bounded_d, 0.0)
        return cls(pairs, p, q, d, dev, k3(xp, d, dev), binary_kl)


def pairs_of(policies: Iterable[str]) -> tuple[Pair, ...]:
    """Return the pairs whose two policies are given. Source: formulas, section 1."""
    given = set(policies)
    return tuple(pair for pair in PAIRS if given.issuperset(RATIOS[pair]))


def clamp_log_ratio(xp: Arrays, d: Array) -> Array:
    """Return log-ratios clamped to the range of exponentials. Source: formulas, section 2."""
    return xp.at_most(xp.at_least(d, -MAX_ABS_EXPONENT), MAX_ABS_EXPONENT)


def k3(xp: Arrays, d: Array, dev: Array) -> Array:
    """Return rho - 1 - d, accurate for any d.

    Args: dev: rho - 1, d clamped.
    Source: [K]; formulas, section 3.
    """
    series = d * d * (0.5 + d * (1 / 6))
    return xp.where(xp.abs(d) < SERIES_BELOW, series, dev - d)
