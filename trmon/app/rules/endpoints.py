"""The rules in force: what makes an alert."""

from __future__ import annotations

from typing import Any, Self

from fastapi import APIRouter, Depends
from pydantic import BaseModel

from trmon.app.callers import reader
from trmon.domain.alerts import Severity
from trmon.domain.conditionbook import written
from trmon.domain.rulebook import builtin
from trmon.domain.rules import Rule

router = APIRouter(prefix="/api/v1/rules", tags=["rules"], dependencies=[Depends(reader)])


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
        return cls(**given | {"when": written(rule.when), "reads": rule.reads.value})


@router.get("")
async def list_rules() -> list[RuleOut]:
    """List the built-in rules."""
    return [RuleOut.of(rule) for rule in builtin()]
