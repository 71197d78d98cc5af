"""Tools on what is wrong with a run: the cause with its evidence and remedy, and the risk of a collapse."""

from __future__ import annotations

from collections.abc import Iterable

from trmon.assistants.answer import ToolAnswer
from trmon.assistants.arguments import RunName, checked_run
from trmon.assistants.bounded import bounded_text, rounded
from trmon.domain.finding import JsonNumber
from trmon_client.api import CollapseRiskInfo, DiagnosisInfo, EvidenceInfo, FindingInfo, Service
from trmon_client.api.diagnosis import RemedyInfo

MAX_EVIDENCE, MAX_UNKNOWN, MAX_CIRCUMSTANCES = 8, 8, 5


class EvidenceAnswer(ToolAnswer):
    """A signal beyond its threshold: `bound` is above or below, `away_from` what the threshold is a distance from."""

    signal: str
    value: JsonNumber
    bound: str
    threshold: JsonNumber
    away_from: JsonNumber
    since_step: int
    rules_out_another_cause: bool | None


class FindingAnswer(ToolAnswer):
    """A finding by its letter, which explain takes, with its evidence."""

    finding: str
    title: str
    since_step: int | None
    evidence: list[EvidenceAnswer]


class MissingAnswer(ToolAnswer):
    """A signal that is unknown, the findings that wait for it, and what would provide it."""

    signal: str
    findings: str
    provide: str


class RemedyAnswer(ToolAnswer):
    """The smallest fix in words and as options of verl and of TRL, and what to do if it does not help."""

    fix: str
    verl: dict[str, str]
    trl: dict[str, str]
    if_it_persists: str


class CircumstanceAnswer(ToolAnswer):
    """A firing alert about the run itself, such as a stall."""

    rule: str
    severity: str
    since_step: int
    summary: str
    fix: str


class DiagnosisAnswer(ToolAnswer):
    """Why a run is ill: `cause` is the letter of the cause, or healthy or unknown; symptoms follow from it.

    `assurance` says what is known of a run without findings; `last_good_step` is where to resume from.
    """

    run: str
    verdict: str
    why: str
    cause: str
    title: str
    meaning: str | None
    judged_step: int
    since_step: int | None
    last_good_step: int | None
    has_ended: bool
    assurance: str
    needs_more_steps: bool | None
    evidence: list[EvidenceAnswer]
    symptoms: list[FindingAnswer]
    circumstances: list[CircumstanceAnswer] | None
    remedy: RemedyAnswer | None
    correction: str
    collapse_probability: JsonNumber
    unknown_for_lack_of: list[MissingAnswer] | None


class DriverAnswer(ToolAnswer):
    """What an input adds to the log-odds of a collapse; below 0 it speaks against one."""

    input: str
    words: str
    log_odds: JsonNumber


class CollapseRiskAnswer(ToolAnswer):
    """The probability that a collapse begins within `horizon_steps`: a prediction, not a finding.

    `level` is low, warn, page, past (a collapse has begun) or unknown; `not_sent` inputs are missing from the run,
    `outside` ones are beyond what the model was fitted to.
    """

    run: str
    level: str
    judged_step: int
    probability: JsonNumber = None
    horizon_steps: int | None = None
    warn_at: JsonNumber = None
    page_at: JsonNumber = None
    drivers: list[DriverAnswer] | None = None
    not_sent: list[str] | None = None
    outside: list[str] | None = None


def diagnose_run_tool(service: Service, run: RunName) -> DiagnosisAnswer:
    """Say why a run is ill, or what is known of one that is not: the cause by its letter (healthy, or unknown for what
    is not measured), its evidence (signals beyond their thresholds), symptoms that follow from it, the step since which
    it holds, the last good step to resume from, and the remedy in words and as options of verl and of TRL."""
    name = checked_run(run)
    found, verdict = service.diagnosis(name), service.status(name).verdict
    cause = [one for one in found.observed if one.finding == found.primary]
    return DiagnosisAnswer(
        run=name,
        verdict=verdict.kind,
        why=bounded_text(verdict.why),
        cause=found.primary,
        title=found.title,
        meaning=found.meaning,
        judged_step=found.step,
        since_step=found.since_step,
        last_good_step=found.last_good_step,
        has_ended=found.has_ended,
        assurance=found.assurance,
        needs_more_steps=found.needs_more_steps or None,
        evidence=[item for one in cause for item in _evidence(one.evidence)],
        symptoms=[_finding(one) for one in found.observed if one.finding != found.primary],
        circumstances=_circumstances(found),
        remedy=None if found.remedy is None else _remedy(found.remedy),
        correction=found.quadrant.advice,
        collapse_probability=rounded(found.collapse_risk.probability) if found.collapse_risk else None,
        unknown_for_lack_of=_missing(found.unknown) or None,
    )


def collapse_risk_tool(service: Service, run: RunName) -> CollapseRiskAnswer:
    """Return the probability that a collapse begins within horizon_steps: a prediction, not a finding. A driver's
    log_odds above 0 raises it. level is low, warn, page, past (a collapse has begun) or unknown (not estimated)."""
    name = checked_run(run)
    found = service.diagnosis(name)
    if found.collapse_risk is None:
        return CollapseRiskAnswer(run=name, level="unknown", judged_step=found.step)
    return _risk(name, found.collapse_risk, judged_step=found.step)


def _risk(name: str, risk: CollapseRiskInfo, *, judged_step: int) -> CollapseRiskAnswer:
    return CollapseRiskAnswer(
        run=name,
        level=risk.level,
        judged_step=judged_step,
        probability=rounded(risk.probability),
        horizon_steps=risk.horizon_steps,
        warn_at=rounded(risk.warn_at),
        page_at=rounded(risk.page_at),
        drivers=[DriverAnswer(input=d.input, words=d.words, log_odds=rounded(d.log_odds)) for d in risk.drivers],
        not_sent=list(risk.missing) or None,
        outside=list(risk.outside) or None,
    )


def _finding(found: FindingInfo) -> FindingAnswer:
    return FindingAnswer(
        finding=found.finding,
        title=found.title,
        since_step=found.since_step,
        evidence=_evidence(found.evidence),
    )


def _evidence(evidence: Iterable[EvidenceInfo]) -> list[EvidenceAnswer]:
    return [
        EvidenceAnswer(
            signal=one.signal,
            value=rounded(one.value),
            bound=one.bound,
            threshold=rounded(one.threshold),
            away_from=rounded(one.away_from),
            since_step=one.since_step,
            rules_out_another_cause=one.rules_out or None,
        )
        for one in list(evidence)[:MAX_EVIDENCE]
    ]


def _circumstances(found: DiagnosisInfo) -> list[CircumstanceAnswer] | None:
    return [
        CircumstanceAnswer(
            rule=one.rule,
            severity=one.severity,
            since_step=one.since_step,
            summary=bounded_text(one.summary),
            fix=bounded_text(one.fix),
        )
        for one in found.circumstances[:MAX_CIRCUMSTANCES]
    ] or None


def _remedy(remedy: RemedyInfo) -> RemedyAnswer:
    return RemedyAnswer(
        fix=remedy.fix,
        verl={**remedy.verl, **remedy.verl_in_words},
        trl={**remedy.trl, **remedy.trl_in_words},
        if_it_persists=remedy.persists,
    )


def _missing(unknown: Iterable[FindingInfo]) -> list[MissingAnswer]:
    """Return each missing signal once, with the letters of the findings that wait for it."""
    waiting: dict[str, tuple[str, list[str]]] = {}
    for one in unknown:
        for missing in one.missing:
            waiting.setdefault(missing.signal, (missing.provide, []))[1].append(one.finding)
    return [
        MissingAnswer(signal=signal, findings=", ".join(findings), provide=provide)
        for signal, (provide, findings) in list(waiting.items())[:MAX_UNKNOWN]
    ]
