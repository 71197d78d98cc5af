"""The policy of a run, and what another one would have masked, as a service answers them."""

from __future__ import annotations

from typing import Any

from trmon_client.api.answers import AnswerInfo, ApiNumber


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
    calibration: str | None = None
    evidence: dict[str, Any]


class ShareInfo(AnswerInfo, frozen=True, kw_only=True):
    """A number of sequences, and the fraction of them that is rejected; NaN without any."""

    n_sequences: int
    mask_rate: ApiNumber


class QuarterInfo(ShareInfo, frozen=True, kw_only=True):
    """A quartile of the sequences by length in tokens."""

    shortest: int
    longest: int


class TurnShareInfo(AnswerInfo, frozen=True, kw_only=True):
    """A number of turns with valid tokens, and the fraction of them that turn criteria would reject."""

    n_turns: int
    mask_rate: ApiNumber


class TokenShareInfo(AnswerInfo, frozen=True, kw_only=True):
    """A number of valid tokens, and the fraction of them that a token rule would mask or down-weight."""

    n_tokens: int
    at_least: ApiNumber
    estimate: ApiNumber
    at_most: ApiNumber


class WeightsInfo(AnswerInfo, frozen=True, kw_only=True):
    """The mean weight of the sequences under a soft policy, and their effective share (sum w)^2/(N sum w^2)."""

    mean: ApiNumber
    effective_share: ApiNumber


class RangeInfo(AnswerInfo, frozen=True, kw_only=True):
    """The steps that a what-if covers."""

    first_step: int | None
    last_step: int | None
    n_steps: int
    n_steps_without_reports: int


class WhatIfInfo(AnswerInfo, frozen=True, kw_only=True):
    """What a policy would have masked (`total`), and what was masked at the time (`then`).

    `weights` is that of a soft policy, whose `total` counts the sequences beyond the bounds; None for a hard one.
    """

    policy: str
    hash: str
    range: RangeInfo
    total: ShareInfo
    then: ShareInfo
    reasons: dict[str, int]
    by_length: tuple[QuarterInfo, ...]
    positive_advantage: ShareInfo
    negative_advantage: ShareInfo
    tokens: dict[str, TokenShareInfo]
    undecided: dict[str, int]
    turns: TurnShareInfo | None = None
    weights: WeightsInfo | None = None
