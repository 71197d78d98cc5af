"""The slope of the log-ratio on the log-probs, pooled over steps: the mark of two temperatures."""

from __future__ import annotations

import math

import msgspec

from trmon.domain.signals.magnitude import is_number

MIN_TOKENS = 2_000
DECAY = 0.9
"""The weight of a step falls by a tenth with each step after it; by less where batches are too small for that."""


class TemperatureSlope(msgspec.Struct, frozen=True, kw_only=True):
    """The token-weighted means of the two slopes and the correlation of the newest steps.

    Source: formulas, section 9, T.
    """

    tokens: float = 0.0
    slope_q: float = 0.0
    slope_p: float = 0.0
    corr: float = 0.0

    def with_step(self, *, n_tokens: float, slope_q: float, slope_p: float, corr: float) -> TemperatureSlope:
        """Return the means after a step; a step with a missing value is skipped."""
        if not all(map(is_number, (n_tokens, slope_q, slope_p, corr))) or n_tokens <= 0:
            return self
        tokens = max(DECAY * self.tokens, min(self.tokens, MIN_TOKENS)) + n_tokens
        new = n_tokens / tokens
        return TemperatureSlope(
            tokens=tokens,
            slope_q=self.slope_q + new * (slope_q - self.slope_q),
            slope_p=self.slope_p + new * (slope_p - self.slope_p),
            corr=self.corr + new * (corr - self.corr),
        )

    @property
    def slope(self) -> float:
        """The smaller slope, with its sign; 0 if the two disagree in sign, NaN with fewer than 2,000 tokens."""
        if self.tokens < MIN_TOKENS:
            return math.nan
        smaller = min(self.slope_q, self.slope_p, key=abs)
        return smaller if self.slope_q * self.slope_p > 0 else 0.0

    @property
    def correlation(self) -> float:
        """The correlation of the log-ratio with log q; NaN with fewer than 2,000 tokens."""
        return self.corr if self.tokens >= MIN_TOKENS else math.nan
