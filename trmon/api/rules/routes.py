"""The rules in force: what makes an alert."""

from __future__ import annotations

from typing import Any, Self

from fastapi import APIRouter, Depends
from pydantic import BaseModel

from trmon.api.http.components import Service
from trmon.api.http.dependencies import require_reader
from trmon.domain.model.severity import Severity
from trmon.domain.rules.condition_yaml import condition_to_yaml
from trmon.domain.rules.rule import Rule

router = APIRouter(prefix="/api/v1/rules", tags=["rules"], dependencies=[Depends(require_reader)])


class RuleOut(BaseModel):
    """One rule; `when` is its condition, thresholds and clear thresholds included."""

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

    @classmethod
    def of(cls, rule: Rule) -> Self:
        """Return a rule as answered."""
        given = {name: getattr(rule, name) for name in cls.model_fields}
        return cls(**given | {"when": condition_to_yaml(rule.when), "reads": rule.reads.value})


class RulesFileOut(BaseModel):
    """The file of rules over the built-in ones; `error` says why its newest form is not in force."""

    path: str | None
    error: str | None


@router.get("")
async def list_rules(service: Service) -> list[RuleOut]:
    """List the rules in force: the built-in ones, and those of the service's own file over them."""
    return [RuleOut.of(rule) for rule in service.rules()]


@router.get("/file")
async def rules_file(service: Service) -> RulesFileOut:
    """Return which file of rules the service reads, and what is wrong with it."""
    path = service.rules.path
    return RulesFileOut(path=None if path is None else str(path), error=service.rules.error)
