"""Request and response schemas of what-if."""

from __future__ import annotations

from typing import Self

from pydantic import BaseModel, ConfigDict, Field

from trmon.api.http.json_numbers import Number
from trmon.api.policies.schemas import Spec
from trmon.domain.analysis.weight_total import WeightTotal
from trmon.domain.analysis.whatif import CoveredRange, LengthQuartile, MaskedTokenShare, RejectedShare, WhatIfEffect

MAX_STEPS = 1_000_000


class Question(BaseModel):
    """A policy to try, and the steps to try it on; by default the newest 1,000 of the run."""

    model_config = ConfigDict(extra="forbid")

    policy: Spec = Field(examples=["geo_mask"])
    attempt_id: int | None = Field(None, ge=0, lt=1 << 62, description="Only this attempt, by its id.")
    from_step: int | None = Field(None, ge=0, lt=1 << 62)
    to_step: int | None = Field(None, ge=0, lt=1 << 62)
    max_steps: int = Field(1000, ge=1, le=MAX_STEPS, description="Maximum number of steps; the newest ones are used.")


class ShareOut(BaseModel):
    """A number of sequences, and the fraction of them that is rejected."""

    n_sequences: int
    mask_rate: Number

    @classmethod
    def of(cls, share: RejectedShare) -> Self:
        """Return the response for a share."""
        return cls(n_sequences=share.n, mask_rate=share.mask_rate)


class QuarterOut(ShareOut):
    """A quartile of the sequences by length."""

    shortest: int = Field(description="Length in tokens, to three digits.")
    longest: int

    @classmethod
    def of_quarter(cls, quarter: LengthQuartile) -> Self:
        """Return the response for a quartile."""
        share = quarter.share
        return cls(shortest=quarter.shortest, longest=quarter.longest, n_sequences=share.n, mask_rate=share.mask_rate)


class TurnShareOut(BaseModel):
    """A number of turns with valid tokens, and the fraction of them that turn criteria would reject."""

    n_turns: int
    mask_rate: Number


class TokenShareOut(BaseModel):
    """A number of valid tokens, and the fraction of them that a token rule would mask or down-weight."""

    n_tokens: int
    at_least: Number
    estimate: Number = Field(description="Assumes that tokens are spread evenly within the histogram's bins.")
    at_most: Number

    @classmethod
    def of(cls, share: MaskedTokenShare) -> Self:
        """Return the response for a share."""
        return cls(
            n_tokens=int(share.n),
            at_least=share.of(share.at_least),
            estimate=share.of(share.estimate),
            at_most=share.of(share.at_most),
        )


class WeightsOut(BaseModel):
    """The weights of the sequences in the loss under a soft policy; of weights 0 and 1 both are the accepted share."""

    mean: Number
    effective_share: Number = Field(description="(sum w)^2/(N sum w^2).")

    @classmethod
    def of(cls, weights: WeightTotal) -> Self:
        """Return the response for weights."""
        return cls(mean=weights.mean, effective_share=weights.effective_share)


class RangeOut(BaseModel):
    """The steps that the result covers; reports are deleted after their retention, batches are not."""

    first_step: int | None
    last_step: int | None
    n_steps: int
    n_steps_without_reports: int = Field(
        description="The number of requested steps whose sequences are no longer stored."
    )


class WhatIfOut(BaseModel):
    """What a policy would have masked, and what was masked at the time."""

    policy: str
    hash: str
    range: RangeOut
    total: ShareOut = Field(description="Under a soft policy, the sequences beyond the bounds.")
    weights: WeightsOut | None = Field(description="Of a soft policy; null for a hard one.")
    then: ShareOut = Field(description="The decisions made during training.")
    reasons: dict[str, int]
    by_length: list[QuarterOut]
    positive_advantage: ShareOut
    negative_advantage: ShareOut
    turns: TurnShareOut | None = Field(description="The effect of the policy's turn criteria; null without any.")
    tokens: dict[str, TokenShareOut] = Field(description="The effect of each of the policy's token rules.")
    undecided: dict[str, int] = Field(
        description="The number of reports without the columns that the policy needs, by what they lack."
    )

    @classmethod
    def of(cls, effect: WhatIfEffect, *, covered: CoveredRange) -> Self:
        """Return the response for an effect. Args: covered: the steps that it covers."""
        turns = effect.turns
        return cls(
            policy=effect.policy.name,
            hash=effect.policy.hash,
            range=RangeOut(
                first_step=covered.first_step,
                last_step=covered.last_step,
                n_steps=covered.n_steps,
                n_steps_without_reports=covered.n_missing,
            ),
            total=ShareOut.of(effect.total),
            weights=None if effect.weights is None else WeightsOut.of(effect.weights),
            then=ShareOut.of(effect.original),
            reasons=dict(effect.reasons),
            by_length=[QuarterOut.of_quarter(quarter) for quarter in effect.quarters()],
            positive_advantage=ShareOut.of(effect.positive),
            negative_advantage=ShareOut.of(effect.negative),
            turns=TurnShareOut(n_turns=turns.n, mask_rate=turns.mask_rate) if effect.policy.turns else None,
            tokens={rule: TokenShareOut.of(share) for rule, share in effect.tokens.items()},
            undecided=dict(effect.undecided),
        )
