"""Tools on what is wrong with a run, what its mismatch and lag leave room for, and what a name means."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

from pydantic import Field

from trmon.assistants.answers import Answer, RunName, bounded_name, bounded_text, checked_run, picked, rounded
from trmon.domain.errors import InvalidInput, did_you_mean
from trmon.domain.findings import remedies
from trmon.domain.findings.catalogue import FindingSpec, builtin_catalogue
from trmon_client.api import FindingInfo, RuleInfo, Service
from trmon_client.api.budget import ShownByInfo
from trmon_client.core.column_schema import PAIRS
from trmon_client.core.signals.catalogue import SIGNALS

MAX_EVIDENCE, MAX_FINDINGS, MAX_CIRCUMSTANCES = 8, 8, 5


def diagnose_run_tool(service: Service, run: RunName) -> Answer:
    """Say why a run is ill, or what is known of one that is not: the verdict, the findings that stand (the one that
    leads first, then its consequences) with their evidence, the step since which it holds, the last good step to resume
    from, the remedy in words and in the options of the run's own framework, signals outside their healthy ranges, and
    what is not measured."""
    name = checked_run(run)
    found, verdict = service.diagnosis(name), service.status(name).verdict
    remedy = found.remedy
    return {
        "run": name,
        **picked(verdict, verdict="kind", why="why"),
        **picked(found, judge="sentence", judged_step="step", judged_steps="rows"),
        **picked(found, "since_step", "last_good_step", "has_ended"),
        "findings": [_found(one) for one in found.findings[:MAX_FINDINGS]],
        "over": [bounded_text(one.headline, 200) for one in found.over[-MAX_FINDINGS:]] or None,
        "outside_healthy_range": [picked(one, "signal", "value", "range") for one in found.outside] or None,
        "circumstances": [
            picked(one, "rule", "severity", "since_step", "summary", "fix")
            for one in found.circumstances[:MAX_CIRCUMSTANCES]
        ]
        or None,
        "remedy": remedy
        and {
            "first": remedy.first,
            "checkpoint": remedy.checkpoint or None,
            "options": {**remedy.options, **remedy.options_in_words} or None,
            "not_known": remedy.not_known or None,
            "if_it_persists": remedy.then or None,
            "options_if_it_persists": {**remedy.then_options, **remedy.then_options_in_words} or None,
        },
        "collapse_probability": rounded(found.collapse_risk.probability) if found.collapse_risk else None,
        "not_measured": [picked(one, "what", "how") for one in found.unmeasured] or None,
    }


def collapse_risk_tool(service: Service, run: RunName) -> Answer:
    """Return the probability that a collapse begins within horizon_steps: a prediction, not a finding. A driver's
    log_odds above 0 raises it. level is low, warn, page, past (a collapse has begun) or unknown (not estimated).
    calibration says what the number is worth."""
    name = checked_run(run)
    found = service.diagnosis(name)
    if found.collapse_risk is None:
        return {"run": name, "level": "unknown", "judged_step": found.step}
    risk = found.collapse_risk
    return {
        "run": name,
        "level": risk.level,
        "judged_step": found.step,
        **picked(risk, "probability", "calibration", "horizon_steps", "warn_at"),
        "drivers": [picked(driver, "input", "words", "log_odds") for driver in risk.drivers],
        "not_sent": list(risk.missing) or None,
    }


def _found(one: FindingInfo) -> Answer:
    return {
        **picked(one, "finding", "title", "meaning", "severity", "since_step", "last_good_step", "found_step"),
        "evidence": [
            {**picked(item, "signal", "value"), "words": bounded_text(item.words, 200)}
            for item in one.evidence[:MAX_EVIDENCE]
        ],
    }


ABSENT = "absent"
MAX_SHOWN = 4


def run_budget_tool(service: Service, run: RunName) -> Answer:
    """Return the mismatch and lag that a run tolerates (conjectures), where its drift comes from (total variation of
    engine mismatch and of stale weights, 0 to 1), and advice for its kind of pipeline."""
    name = checked_run(run)
    found = service.budget(name)
    split = found.split
    return {
        "run": name,
        "step": found.step,
        "mismatch": [picked(one, "name", "limit", "signal", "value", "state", "note") for one in found.mismatch],
        "lag_steps": rounded(found.lag.lag),
        "lag_ceiling_steps": rounded(found.lag.ess_ceiling),
        "lag_law": list(found.lag_words),
        "drift": {
            **picked(split, worst_mismatch="alpha_1", worst_staleness="alpha_0"),
            **picked(split, "mismatch_share", "mean_mismatch", "mean_staleness"),
            "note": split.note or None,
            "routing_is_replayed": split.is_replayed or None,
        },
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
            description="A finding such as stale_rollouts, a rule such as mask_rate, or a signal such as "
            "mismatch_kl_k3.",
            max_length=128,
        ),
    ],
) -> Answer:
    """Explain a finding, a rule (its runbook) or a signal: what it means, when it is raised, and what to do."""
    findings = builtin_catalogue().findings
    rules = {one.name: one for one in service.rules()}
    if finding := next((one for one in findings if name in (one.id, one.title)), None):
        return finding_answer(finding, rules.get(finding.id))
    if rule := rules.get(name):
        return _rule(rule)
    if spec := SIGNALS.get(name) or next((one for one in SIGNALS.values() if one.stem == name), None):
        of_pair = "" if spec.pair is None else f" Of the pair {spec.pair}: {PAIR_MEANINGS[spec.pair]}."
        prefixes = " Its names begin with a pair: " + ", ".join(f"{pair}_{name}" for pair in PAIRS) + "."
        return {
            "kind": "signal",
            "name": name,
            "meaning": f"{spec.description}.{of_pair if name == spec.name else prefixes}",
            "unit": spec.unit,
            "formula": spec.formula,
            "healthy": spec.healthy or None,
        }
    known = [*rules, *(one.id for one in findings), *SIGNALS]
    near = did_you_mean(name, known) or f"; findings: {', '.join(one.id for one in findings)}"
    raise InvalidInput("name", f"no finding, rule or signal {bounded_name(name)!r}{near}")


def finding_answer(finding: FindingSpec, rule: RuleInfo | None = None) -> Answer:
    """Return what a finding means. Args: rule: the finding as the service judges it, None where it does not."""
    found = remedies.remedy(finding.id, framework=None, config={}, last_good_step=None, has_ended=False)
    return {
        "kind": "finding",
        "name": finding.id,
        "title": finding.title,
        "meaning": finding.meaning,
        "severity": finding.severity.value,
        "what_to_do": found.first,
        "if_it_persists": found.then or None,
        "clauses": None if rule is None else [bounded_text(one.words, 200) for one in rule.clauses],
    }


def _rule(rule: RuleInfo) -> Answer:
    return {
        "kind": "rule",
        "name": rule.name,
        "meaning": bounded_text(rule.meaning, 1500),
        "what_to_do": bounded_text(rule.runbook),
        "severity": rule.severity,
        "fires_when": [
            *(f"{'  ' * line.depth}{bounded_text(line.words, 200)}" for line in rule.fires_when[:40]),
            *rule.terms,
        ],
    }
