"""Closed batches of a run as a service describes them."""

from __future__ import annotations

from trmon_client.api.answers import AnswerInfo, ApiNumber


class QuarantinedInfo(AnswerInfo, frozen=True, kw_only=True):
    """A part of a batch that the service could not process."""

    part: str
    place: str
    reason: str


class BatchInfo(AnswerInfo, frozen=True, kw_only=True):
    """A closed batch: one update of a step, or with `update` None its whole rollout batch.

    `ordinal` counts the batches of a run from 1, in the order in which they closed. `complete` is None if unknown.
    """

    attempt_id: int
    step: int
    update: int | None
    ordinal: int
    closed_at: float
    n_sequences: int
    n_tokens: int
    n_ranks: int
    missing_ranks: tuple[int, ...]
    complete: bool | None
    revised: bool
    mode: str
    primary_pair: str | None
    kl_is: str
    policy_hash: str | None
    mismatches: int
    signals: dict[str, ApiNumber]
    scalars: dict[str, ApiNumber]
    quarantined: tuple[QuarantinedInfo, ...]
