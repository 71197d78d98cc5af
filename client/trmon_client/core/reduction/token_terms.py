"""The tokens of a block of sequences: which are valid, and their log-probs under each policy.

Arrays are float64 [policies, ...], or [...] if all policies share them, with time and sequences in the order that is
fastest to reduce. Terms are exactly 0 at tokens that are not valid.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from trmon_client.core.arrays import Array, Arrays
from trmon_client.core.column_schema import PAIRS, Pair, primary
from trmon_client.core.inputs.checked_inputs import POLICIES, CheckedInputs, is_sound

TIME_FIRST_BELOW = 256
"""Shorter horizons are reduced with time as the leading axis, because rows that short do not vectorise."""


@dataclass(frozen=True)
class TokenBlock:
    """The validity, log-probs and probabilities of the tokens of a block."""

    xp: Arrays
    axis: int
    """The time axis: -1, or -2 if sequences come last."""
    policies: tuple[str, ...]
    counts: Array
    """bool [...]: the mask."""
    valid: Array
    """bool [...]: the token counts and is not invalid."""
    weight: Array
    """[...]: 1 where valid."""
    logp: Array
    """[policies, ...]"""
    bounded: Array
    """[policies, ...]: log-probs, with positive ones taken as 0."""
    p: Array
    """[policies, ...]: probabilities, at most 1."""

    @classmethod
    def of(cls, inputs: CheckedInputs) -> TokenBlock:
        """Return the tokens of a block. Source: formulas, section 2."""
        xp = inputs.functions
        policies = tuple(name for name in POLICIES if name in inputs.logprobs)
        axis = -2 if inputs.mask.shape[1] < TIME_FIRST_BELOW else -1
        counts = valid = time_last(inputs.mask, axis=axis)
        raw = xp.empty((len(policies), *counts.shape), "f8", getattr(counts, "device", None))
        for row, name in zip(raw, policies, strict=True):
            row[...] = time_last(inputs.logprobs[name], axis=axis)
        for sound in is_sound(raw):
            valid = valid & sound
        logp = xp.where(valid, raw, 0.0)
        weight = xp.cast(valid, "f8")
        bounded = xp.at_most(logp, 0.0)
        p = xp.exp(bounded) * weight
        return cls(xp, axis, policies, counts, valid, weight, logp, bounded, p)


def time_last(array: Array, *, axis: int) -> Array:
    """Return an array [B, T] with time on the axis, as a view."""
    return array if axis == -1 else array.T


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


def rollout_pair(pairs: Iterable[Pair]) -> Pair | None:
    """Return the pair of the sampler with the trainer, pi_old before pi; None if it is not given."""
    return next((pair for pair in pairs if RATIOS[pair][1] == POLICIES[0]), None)


def clamp_log_ratio(xp: Arrays, d: Array) -> Array:
    """Return log-ratios clamped to the range of exponentials. Source: formulas, section 2."""
    return xp.at_most(xp.at_least(d, -MAX_ABS_EXPONENT), MAX_ABS_EXPONENT)


def k3(xp: Arrays, d: Array, dev: Array) -> Array:
    """Return rho - 1 - d, accurate for any d. Args: dev: rho - 1, d clamped. Source: [K]; formulas, section 3."""
    series = d * d * (0.5 + d * (1 / 6))
    return xp.where(xp.abs(d) < SERIES_BELOW, series, dev - d)


@dataclass(frozen=True, slots=True)
class ClipRange:
    """PPO clips rho to [1 - low, 1 + high]; with dual clip the loss of A < 0 stops growing at rho = `dual`."""

    low: float = 0.2
    high: float = 0.2
    dual: float = 3.0


DEFAULT_CLIP = ClipRange()


def clipped_pair(pairs: tuple[Pair, ...]) -> Pair:
    """Return the pair that PPO clips: staleness, else the primary one."""
    return "staleness" if "staleness" in pairs else primary(pairs)


@dataclass(frozen=True, slots=True)
class ClipTokens:
    """The tokens whose rho of the clipped pair is above 1 + high, below 1 - low, or above dual, and the valid ones.

    Flags, [..., T], or their numbers in each sequence, [B].
    """

    above: Array
    below: Array
    far: Array
    valid: Array

    def columns(self, advantages: Array, *, both: Callable[[Array, Array], Array]) -> dict[str, Array]:
        """Return `column_schema.CLIP_STEMS`, by the sign of the advantage: of NaN there is none.

        Args: advantages: of a shape that broadcasts to the tokens'; both: returns the number of tokens, [B], that are
            among some and have a sign; `times` for numbers.
        Source: [TRM] 4.1; dual clip: Ye et al., arXiv 1912.09729, eq. 5; formulas, section 3.
        """
        gain, loss = advantages > 0, advantages < 0
        clipped_high, leaked_high = both(self.above, gain), both(self.above, loss)
        return {
            "n_clipped": clipped_high + both(self.below, loss),
            "n_leaked": leaked_high + both(self.below, gain),
            "n_leaked_high": leaked_high,
            "n_clipped_high": clipped_high,
            "n_dual_clipped": both(self.far, loss),
            "n_positive_advantage": both(self.valid, gain),
            "n_negative_advantage": both(self.valid, loss),
        }


def times(n: Array, sign: Array) -> Array:
    """Return the number of a sequence's tokens where its advantage has the sign."""
    return n * sign


def counted_both(xp: Arrays, axis: int) -> Callable[[Array, Array], Array]:
    """Return the function that counts the tokens of each sequence that are flagged and whose advantage has a sign."""
    return lambda flags, sign: xp.count(flags & sign, axis)
