"""Sequences of a closed batch as a service describes them."""

from __future__ import annotations

from trmon_client.api.answers import AnswerInfo, ApiNumber


class SequenceDecisionsInfo(AnswerInfo, frozen=True, kw_only=True):
    """The decisions of one policy, in the order of the sequences; a reason is None for an accepted one."""

    policy: str
    role: str
    accepted: tuple[bool, ...]
    reasons: tuple[str | None, ...]


class CriterionValuesInfo(AnswerInfo, frozen=True, kw_only=True):
    """The values that a criterion of the active policy compared, and its bounds."""

    statistic: str
    pair: str
    lower: ApiNumber | None
    upper: ApiNumber | None
    values: tuple[ApiNumber, ...]


class SequencesInfo(AnswerInfo, frozen=True, kw_only=True):
    """Sequences of a batch from index `first`; `n_sequences` is how many the whole batch has."""

    first: int
    n_sequences: int
    columns: dict[str, tuple[ApiNumber, ...]]
    decisions: tuple[SequenceDecisionsInfo, ...]
    criteria: tuple[CriterionValuesInfo, ...]
