"""The policy of a run, its adaptation, what another one would have masked, and error bounds."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import field

from trmon_client.api.answers import AdaptationMode, AnswerInfo, ApiNumber, NoChangeReason, says


class MoveInfo(AnswerInfo, frozen=True, kw_only=True):
    """A bound that would change; `wanted` is its value without limits."""

    statistic: str
    pair: str
    side: str
    before: ApiNumber
    after: ApiNumber
    wanted: ApiNumber
    limit: Annotated[str | None, says("What limits the change: factor, floor or ceiling.")]


class ProposalInfo(AnswerInfo, frozen=True, kw_only=True):
    """A controller's proposal: a policy to activate, or the reason to keep the bounds."""

    hold: NoChangeReason | None = None
    reason: str
    policy: dict[str, Any] | None = None
    n_sequences: int | None = None
    mask_rate_before: ApiNumber | None = None
    mask_rate_after: ApiNumber | None = None
    basis: dict[str, ApiNumber] = field(default_factory=dict)
    moves: tuple[MoveInfo, ...] = ()


class AdaptationInfo(AnswerInfo, frozen=True, kw_only=True):
    """A run's adaptation setting and, unless it is off, the proposals for its newest stored sequences."""

    mode: AdaptationMode
    target_mask_rate: float | None
    window_sequences: int
    every_steps: int
    floor_factor: float
    ceiling_factor: float
    recommended: ProposalInfo | None = None
    bound_budget: Annotated[ProposalInfo | None, says("What an error bound would require; never applied.")] = None


class BoundsInfo(AnswerInfo, frozen=True, kw_only=True):
    """Bounds on the difference between surrogate and objective, for rewards in [0, 1]; [TRM], section 3."""

    trpo: ApiNumber
    pinsker_marginal: ApiNumber
    mixed: ApiNumber
    adaptive: ApiNumber
    vacuous: Annotated[bool | None, says("Whether the bound exceeds the range of rewards and certifies nothing.")]
    max_delta: Annotated[ApiNumber | None, says("Largest token KL that keeps the bound within the budget, in nats.")]


class PolicyInfo(AnswerInfo, frozen=True, kw_only=True):
    """One version of a run's policy, with its author and reason."""

    name: str
    hash: str
    policy: dict[str, Any]
    shadows: tuple[dict[str, Any], ...]
    author: str
    reason: str
    created_at: float
    from_step: int
    pinned: bool
    calibration: Annotated[
        str | None,
        says(
            "uncalibrated: the bounds are ceilings until the run has been measured; calibrated; "
            "at_ceilings; starts_ill: nothing was calibrated; null for fixed bounds."
        ),
    ] = None
    evidence: Annotated[dict[str, Any], says("The evidence for a controller's version.")]


class ShareInfo(AnswerInfo, frozen=True, kw_only=True):
    """A number of sequences, and the fraction of them that is rejected."""

    n_sequences: int
    mask_rate: ApiNumber


class QuarterInfo(ShareInfo, frozen=True, kw_only=True):
    """A quartile of the sequences by length."""

    shortest: Annotated[int, says("Length in tokens, to three digits.")]
    longest: int


class TurnShareInfo(AnswerInfo, frozen=True, kw_only=True):
    """A number of turns with valid tokens, and the fraction of them that turn criteria would reject."""

    n_turns: int
    mask_rate: ApiNumber


class TokenShareInfo(AnswerInfo, frozen=True, kw_only=True):
    """A number of valid tokens, and the fraction of them that a token rule would mask or down-weight."""

    n_tokens: int
    at_least: ApiNumber
    estimate: Annotated[ApiNumber, says("Assumes that tokens are spread evenly within the histogram's bins.")]
    at_most: ApiNumber


class WeightsInfo(AnswerInfo, frozen=True, kw_only=True):
    """The weights of the sequences in the loss under a soft policy; of weights 0 and 1 both are the accepted share."""

    mean: ApiNumber
    effective_share: Annotated[ApiNumber, says("(sum w)^2/(N sum w^2).")]


class RangeInfo(AnswerInfo, frozen=True, kw_only=True):
    """The steps that the result covers; reports are deleted after their retention, batches are not."""

    first_step: int | None
    last_step: int | None
    n_steps: int
    n_steps_without_reports: Annotated[int, says("The number of requested steps whose sequences are no longer stored.")]


class WhatIfInfo(AnswerInfo, frozen=True, kw_only=True):
    """What a policy would have masked, and what was masked at the time."""

    policy: str
    hash: str
    range: RangeInfo
    total: Annotated[ShareInfo, says("Under a soft policy, the sequences beyond the bounds.")]
    weights: Annotated[WeightsInfo | None, says("Of a soft policy; null for a hard one.")]
    then: Annotated[ShareInfo, says("The decisions made during training.")]
    reasons: dict[str, int]
    by_length: tuple[QuarterInfo, ...]
    positive_advantage: ShareInfo
    negative_advantage: ShareInfo
    turns: Annotated[TurnShareInfo | None, says("The effect of the policy's turn criteria; null without any.")]
    tokens: Annotated[dict[str, TokenShareInfo], says("The effect of each of the policy's token rules.")]
    undecided: Annotated[
        dict[str, int], says("The number of reports without the columns that the policy needs, by what they lack.")
    ]
