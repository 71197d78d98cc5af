"""The tool that explains a rule, a finding or a signal, in the words of the runbooks and of the catalogue."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import Field

from trmon.assistants.answer import ToolAnswer
from trmon.assistants.bounded import bounded_name, bounded_text
from trmon.domain.diagnosis.remedies import REMEDIES
from trmon.domain.errors import InvalidInput, did_you_mean
from trmon.domain.finding import CAUSES, Finding
from trmon_client.api import RuleInfo, Service
from trmon_client.core.column_schema import PAIRS
from trmon_client.core.signals.catalogue import SIGNALS, SignalSpec

PAIR_MEANINGS = {
    "mismatch": "rollout engine against trainer at the same weights",
    "staleness": "old against new weights of the trainer",
    "total": "rollout engine against the newest weights",
}


class ExplanationAnswer(ToolAnswer):
    """What a name means: `kind` is rule, finding or signal, and says which of the fields there are."""

    kind: str
    name: str
    title: str | None = None
    meaning: str
    what_to_do: str | None = None
    if_it_persists: str | None = None
    finding: str | None = None
    severity: str | None = None
    fires_when: list[str] | None = None
    rules: list[str] | None = None
    unit: str | None = None
    formula: str | None = None
    healthy: str | None = None


def explain_tool(
    service: Service,
    name: Annotated[
        str,
        Field(
            description="A rule such as stale_rollouts, a finding by its letter or title such as B or staleness, or a "
            "signal such as mismatch_kl_k3.",
            max_length=128,
        ),
    ],
) -> ExplanationAnswer:
    """Explain a rule (its runbook), a finding or a signal: what it means, when it is raised, and what to do."""
    rules = service.rules()
    if rule := next((one for one in rules if one.name == name), None):
        return _rule(rule)
    if finding := next((one for one in CAUSES if name in (one.value, one.title)), None):
        return finding_answer(finding, rules)
    if spec := SIGNALS.get(name) or next((one for one in SIGNALS.values() if one.stem == name), None):
        return _signal(spec, asked=name)
    known = [*(one.name for one in rules), *(one.title for one in CAUSES), *SIGNALS]
    letters = ", ".join(f"{one.value} {one.title}" for one in CAUSES)
    near = did_you_mean(name, known) or f"; findings: {letters}"
    raise InvalidInput("name", f"no rule, finding or signal {bounded_name(name)!r}{near}")


def finding_answer(finding: Finding, rules: Sequence[RuleInfo]) -> ExplanationAnswer:
    """Return what a finding means, with the rules that show it."""
    remedy: Any = REMEDIES[finding].render()
    return ExplanationAnswer(
        kind="finding",
        name=finding.value,
        title=finding.title,
        meaning=finding.meaning or "",
        what_to_do=remedy.fix,
        if_it_persists=remedy.persists,
        rules=[bounded_name(rule.name) for rule in rules if rule.finding == finding.value] or None,
    )


def _rule(rule: RuleInfo) -> ExplanationAnswer:
    return ExplanationAnswer(
        kind="rule",
        name=rule.name,
        meaning=bounded_text(rule.meaning, 1500),
        what_to_do=bounded_text(rule.runbook),
        finding=rule.finding,
        severity=rule.severity,
        fires_when=[
            *(f"{'  ' * line.depth}{bounded_text(line.words, 200)}" for line in rule.fires_when[:40]),
            *rule.terms,
        ],
    )


def _signal(spec: SignalSpec, *, asked: str) -> ExplanationAnswer:
    of_pair = "" if spec.pair is None else f" Of the pair {spec.pair}: {PAIR_MEANINGS[spec.pair]}."
    prefixes = " Its names begin with a pair: " + ", ".join(f"{pair}_{asked}" for pair in PAIRS) + "."
    return ExplanationAnswer(
        kind="signal",
        name=asked,
        meaning=f"{spec.description}.{of_pair if asked == spec.name else prefixes}",
        unit=spec.unit,
        formula=spec.formula,
        healthy=spec.healthy or None,
    )
