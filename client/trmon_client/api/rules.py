"""Alert rules as a service describes them."""

from __future__ import annotations

from trmon_client.api.answers import AnswerInfo


class ConditionLineInfo(AnswerInfo, frozen=True, kw_only=True):
    """A line of a rule's condition in words; lines of greater depth are its parts."""

    depth: int
    words: str


class RuleInfo(AnswerInfo, frozen=True, kw_only=True):
    """An active rule: what its alert means, what to do (`runbook`) and when it fires, in words."""

    name: str
    severity: str
    summary: str
    runbook: str
    meaning: str
    finding: str | None
    fires_when: tuple[ConditionLineInfo, ...]
    terms: tuple[str, ...]
