"""Response schemas of the active rules."""

from __future__ import annotations

from typing import Any, Self

from pydantic import BaseModel, Field

from trmon.api.http.response_model import ResponseModel
from trmon.domain.model.finding import Finding
from trmon.domain.model.severity import Severity
from trmon.domain.rules.condition_yaml import condition_to_yaml
from trmon.domain.rules.rule import Rule
from trmon.domain.rules.rule_words import condition_in_words, terms_in_words


class ConditionLineOut(ResponseModel):
    """A line of a condition in words; lines of greater depth are its parts."""

    depth: int
    words: str


class RuleOut(ResponseModel):
    """An alert rule; `when` is its condition with thresholds and clear thresholds."""

    name: str
    severity: Severity
    severity_when_enforcing: Severity | None
    when: dict[str, Any]
    reads: str
    for_steps: int
    for_seconds: float
    clear_for_steps: int
    immune_steps: int
    summary: str
    labels: dict[str, str]
    runbook: str
    meaning: str
    finding: Finding | None = Field(description="The finding that the rule shows; its alerts join the run's incident.")
    is_symptom: bool
    fires_when: list[ConditionLineOut] = Field(description="`when` in words.")
    terms: list[str] = Field(description="What the rule reads, and for how many steps its condition must hold.")

    @classmethod
    def of(cls, rule: Rule) -> Self:
        """Return the response for a rule."""
        return cls.from_fields(
            rule,
            when=condition_to_yaml(rule.when),
            reads=rule.reads.value,
            fires_when=[ConditionLineOut(depth=depth, words=words) for depth, words in condition_in_words(rule.when)],
            terms=list(terms_in_words(rule)),
        )


class RulesFileOut(BaseModel):
    """The rules file of the service; `error` says why its latest version is not active."""

    path: str | None
    error: str | None
