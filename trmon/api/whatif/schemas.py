"""What-if in requests and answers."""

from __future__ import annotations

from typing import Self

from pydantic import BaseModel, ConfigDict, Field

from trmon.api.http.json_numbers import Number
from trmon.api.policies.schemas import Spec
from trmon.domain.analysis.whatif import CoveredRange, LengthQuartile, MaskedTokenShare, RejectedShare, WhatIfEffect

MAX_STEPS = 1_000_000


class Question(BaseModel):
    """A policy to try, and over which steps; without any, over the newest 1,000 of the run."""

    model_config = ConfigDict(extra="forbid")

    policy: Spec = Field(examples=["geo_mask"])
    attempt_id: int | None = Field(None, ge=0, lt=1 << 62, description="Only this attempt, by its id.")
    from_step: int | None = Field(None, ge=0, lt=1 << 62)
    to_step: int | None = Field(None, ge=0, lt=1 << 62)
    max_steps: int = Field(1000, ge=1, le=MAX_STEPS, description="At most so many steps, the newest ones.")


class ShareOut(BaseModel):
    """Sequences that count, and the fraction of them that is rejected."""

    n_sequences: int
    mask_rate: Number

    @classmethod
    def of(cls, share: RejectedShare) -> Self:
        """Return a share as answered."""
        return cls(n_sequences=share.n, mask_rate=share.mask_rate)


class QuarterOut(ShareOut):
    """A quarter of the sequences by length."""

    shortest: int = Field(description="Tokens, to three digits.")
    longest: int

    @classmethod
    def of_quarter(cls, quarter: LengthQuartile) -> Self:
        """Return a quarter as answered."""
        share = quarter.share
        return cls(shortest=quarter.shortest, longest=quarter.longest, n_sequences=share.n, mask_rate=share.mask_rate)


class TokenShareOut(BaseModel):
    """Valid tokens, and the fraction of them that a token rule would mask, or cut the weight of."""

    n_tokens: int
    at_least: Number
    estimate: Number = Field(description="Tokens are taken to lie evenly within the bins of the histogram.")
    at_most: Number

    @classmethod
    def of(cls, share: MaskedTokenShare) -> Self:
        """Return a share as answered."""
        return cls(
            n_tokens=int(share.n),
            at_least=share.of(share.at_least),
            estimate=share.of(share.estimate),
            at_most=share.of(share.at_most),
        )


class RangeOut(BaseModel):
    """Which steps the answer rests on: reports are kept for a limited time, rows are not."""

    first_step: int | None
    last_step: int | None
    n_steps: int
    n_steps_without_reports: int = Field(description="Steps asked for whose sequences are no longer stored.")


class WhatIfOut(BaseModel):
    """What a policy would have masked, beside what was masked then."""

    policy: str
    hash: str
    range: RangeOut
    total: ShareOut
    then: ShareOut = Field(description="What was decided when the sequences were trained on.")
    reasons: dict[str, int]
    by_length: list[QuarterOut]
    positive_advantage: ShareOut
    negative_advantage: ShareOut
    tokens: dict[str, TokenShareOut] = Field(description="What the policy's token rules would do, by rule.")
    undecided: dict[str, int] = Field(description="Reports that lack what the policy needs, by what they lack.")

    @classmethod
    def of(cls, effect: WhatIfEffect, *, reach: CoveredRange) -> Self:
        """Return an effect as answered. Args: reach: the steps that it rests on."""
        return cls(
            policy=effect.policy.name,
            hash=effect.policy.hash,
            range=RangeOut(
                first_step=reach.first_step,
                last_step=reach.last_step,
                n_steps=reach.n_steps,
                n_steps_without_reports=reach.n_missing,
            ),
            total=ShareOut.of(effect.total),
            then=ShareOut.of(effect.original),
            reasons=dict(effect.reasons),
            by_length=[QuarterOut.of_quarter(quarter) for quarter in effect.quarters()],
            positive_advantage=ShareOut.of(effect.positive),
            negative_advantage=ShareOut.of(effect.negative),
            tokens={rule: TokenShareOut.of(share) for rule, share in effect.tokens.items()},
            undecided=dict(effect.undecided),
        )
