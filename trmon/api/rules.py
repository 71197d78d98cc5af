"""The active alert rules."""

from __future__ import annotations

from typing import Any, Self

from fastapi import APIRouter, Depends
from pydantic import BaseModel, Field

from trmon.api.http.auth import require_reader
from trmon.api.http.components import Service
from trmon.api.http.response_model import ResponseModel
from trmon.domain.model.errors import NotFound
from trmon.domain.model.finding import Finding, Severity
from trmon.domain.rules.condition_yaml import condition_to_yaml
from trmon.domain.rules.rule import Rule, condition_in_words, terms_in_words


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


router = APIRouter(prefix="/api/v1/rules", tags=["rules"], dependencies=[Depends(require_reader)])


@router.get("")
async def list_rules(service: Service) -> list[RuleOut]:
    """List the active rules: the built-in ones, as overridden by the service's rules file."""
    return [RuleOut.of(rule) for rule in service.rules()]


@router.get("/file")
async def rules_file(service: Service) -> RulesFileOut:
    """Return the path of the service's rules file and its error, if any."""
    path = service.rules.path
    return RulesFileOut(path=None if path is None else str(path), error=service.rules.error)


@router.get("/{name}")
async def get_rule(name: str, service: Service) -> RuleOut:
    """Return an active rule, with what its alert means and what to do."""
    rule = next((rule for rule in service.rules() if rule.name == name), None)
    if rule is None:
        raise NotFound("rule", name)
    return RuleOut.of(rule)
