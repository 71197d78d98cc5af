"""Tools on what is wrong with a run, what its mismatch and lag leave room for, and what a name means."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated, Any

from pydantic import Field

from trmon.assistants.answers import Answer, RunName, bounded_name, bounded_text, checked_run, picked, rounded
from trmon.domain.diagnosis.remedies import REMEDIES
from trmon.domain.errors import InvalidInput, did_you_mean
from trmon.domain.finding import CAUSES, Finding
from trmon_client.api import BudgetInfo, DiagnosisInfo, EvidenceInfo, FindingInfo, RuleInfo, Service
from trmon_client.api.budget import ShownByInfo
from trmon_client.api.diagnosis import RemedyInfo
from trmon_client.core.column_schema import PAIRS
from trmon_client.core.signals.catalogue import SIGNALS, SignalSpec

MAX_EVIDENCE, MAX_UNKNOWN, MAX_CIRCUMSTANCES = 8, 8, 5


def diagnose_run_tool(service: Service, run: RunName) -> Answer:
    """Say why a run is ill, or what is known of one that is not: the cause by its letter (healthy, or unknown for what
    is not measured), its evidence (signals beyond their thresholds), symptoms that follow from it, the step since which
    it holds, the last good step to resume from, and the remedy in words and as options of verl and of TRL."""
    name = checked_run(run)
    found, verdict = service.diagnosis(name), service.status(name).verdict
    cause = [one for one in found.observed if one.finding == found.primary]
    return {
        "run": name,
        **picked(verdict, verdict="kind", why="why"),
        **picked(found, cause="primary", title="title", meaning="meaning", judged_step="step"),
        **picked(found, "since_step", "last_good_step", "has_ended", "assurance"),
        "needs_more_steps": found.needs_more_steps or None,
        "evidence": [item for one in cause for item in _evidence(one.evidence)],
        "symptoms": [
            {**picked(one, "finding", "title", "since_step"), "evidence": _evidence(one.evidence)}
            for one in found.observed
            if one.finding != found.primary
        ],
        "circumstances": _circumstances(found),
        "remedy": None if found.remedy is None else _remedy(found.remedy),
        "correction": found.quadrant.advice,
        "collapse_probability": rounded(found.collapse_risk.probability) if found.collapse_risk else None,
        "unknown_for_lack_of": _missing(found.unknown) or None,
    }


def collapse_risk_tool(service: Service, run: RunName) -> Answer:
    """Return the probability that a collapse begins within horizon_steps: a prediction, not a finding. A driver's
    log_odds above 0 raises it. level is low, warn, page, past (a collapse has begun) or unknown (not estimated)."""
    name = checked_run(run)
    found = service.diagnosis(name)
    if found.collapse_risk is None:
        return {"run": name, "level": "unknown", "judged_step": found.step}
    risk = found.collapse_risk
    return {
        "run": name,
        "level": risk.level,
        "judged_step": found.step,
        **picked(risk, "probability", "horizon_steps", "warn_at", "page_at"),
        "drivers": [picked(driver, "input", "words", "log_odds") for driver in risk.drivers],
        "not_sent": list(risk.missing) or None,
        "outside": list(risk.outside) or None,
    }


def _evidence(evidence: Iterable[EvidenceInfo]) -> list[Answer]:
    return [
        {
            **picked(one, "signal", "value", "bound", "threshold", "away_from", "since_step"),
            "rules_out_another_cause": one.rules_out or None,
        }
        for one in list(evidence)[:MAX_EVIDENCE]
    ]


def _circumstances(found: DiagnosisInfo) -> list[Answer] | None:
    return [
        picked(one, "rule", "severity", "since_step", "summary", "fix")
        for one in found.circumstances[:MAX_CIRCUMSTANCES]
    ] or None


def _remedy(remedy: RemedyInfo) -> Answer:
    return {
        "fix": remedy.fix,
        "verl": {**remedy.verl, **remedy.verl_in_words},
        "trl": {**remedy.trl, **remedy.trl_in_words},
        "if_it_persists": remedy.persists,
    }


def _missing(unknown: Iterable[FindingInfo]) -> list[Answer]:
    """Return each missing signal once, with the letters of the findings that wait for it."""
    waiting: dict[str, tuple[str, list[str]]] = {}
    for one in unknown:
        for missing in one.missing:
            waiting.setdefault(missing.signal, (missing.provide, []))[1].append(one.finding)
    return [
        {"signal": signal, "findings": ", ".join(findings), "provide": provide}
        for signal, (provide, findings) in list(waiting.items())[:MAX_UNKNOWN]
    ]


ABSENT = "absent"
MAX_SHOWN = 4


def run_budget_tool(service: Service, run: RunName) -> Answer:
    """Return the mismatch and lag that a run tolerates (conjectures), where its drift comes from (total variation of
    engine mismatch and of stale weights, 0 to 1), and advice for its kind of pipeline."""
    name = checked_run(run)
    found = service.budget(name)
    return {
        "run": name,
        "step": found.step,
        "mismatch": [picked(one, "name", "limit", "signal", "value", "state", "note") for one in found.mismatch],
        "lag_steps": rounded(found.lag.lag),
        "lag_ceiling_steps": rounded(found.lag.ess_ceiling),
        "lag_law": list(found.lag_words),
        "drift": _drift(found),
        "pipeline": [
            {"kind": one.title, "shown_by": _shown(one.shown_by), "method": one.method}
            for one in found.pipeline.methods
        ],
        "correction": found.pipeline.correction,
        "anti_patterns": [
            picked(one, "name", "presence", "why") for one in found.pipeline.anti_patterns if one.presence != ABSENT
        ],
        "trainer_advice": None if found.advice is None else found.advice.reasons,
    }


def _drift(found: BudgetInfo) -> Answer:
    split = found.split
    return {
        **picked(split, worst_mismatch="alpha_1", worst_staleness="alpha_0"),
        **picked(split, "mismatch_share", "mean_mismatch", "mean_staleness"),
        "routing_is_replayed": split.is_replayed or None,
    }


def _shown(shown_by: Iterable[ShownByInfo]) -> str:
    return ", ".join(f"{bounded_name(one.name)} {bounded_name(one.value)}" for one in list(shown_by)[:MAX_SHOWN])


PAIR_MEANINGS = {
    "mismatch": "rollout engine against trainer at the same weights",
    "staleness": "old against new weights of the trainer",
    "total": "rollout engine against the newest weights",
}


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
) -> Answer:
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


def finding_answer(finding: Finding, rules: Sequence[RuleInfo]) -> Answer:
    """Return what a finding means, with the rules that show it."""
    remedy: Any = REMEDIES[finding].render()
    return {
        "kind": "finding",
        "name": finding.value,
        "title": finding.title,
        "meaning": finding.meaning or "",
        "what_to_do": remedy.fix,
        "if_it_persists": remedy.persists,
        "rules": [bounded_name(rule.name) for rule in rules if rule.finding == finding.value] or None,
    }


def _rule(rule: RuleInfo) -> Answer:
    return {
        "kind": "rule",
        "name": rule.name,
        "meaning": bounded_text(rule.meaning, 1500),
        "what_to_do": bounded_text(rule.runbook),
        "finding": rule.finding,
        "severity": rule.severity,
        "fires_when": [
            *(f"{'  ' * line.depth}{bounded_text(line.words, 200)}" for line in rule.fires_when[:40]),
            *rule.terms,
        ],
    }


def _signal(spec: SignalSpec, *, asked: str) -> Answer:
    of_pair = "" if spec.pair is None else f" Of the pair {spec.pair}: {PAIR_MEANINGS[spec.pair]}."
    prefixes = " Its names begin with a pair: " + ", ".join(f"{pair}_{asked}" for pair in PAIRS) + "."
    return {
        "kind": "signal",
        "name": asked,
        "meaning": f"{spec.description}.{of_pair if asked == spec.name else prefixes}",
        "unit": spec.unit,
        "formula": spec.formula,
        "healthy": spec.healthy or None,
    }
