"""The diagnosis of a run as a service answers it: the cause, its evidence and the remedy."""

from __future__ import annotations

from msgspec import field

from trmon_client.api.answers import AnswerInfo, ApiNumber
from trmon_client.api.runs import IncidentInfo


class EvidenceInfo(AnswerInfo, frozen=True, kw_only=True):
    """A signal beyond its threshold; `bound` is above or below; `away_from`: what the threshold is a distance from.

    `rules_out`: the value is a usual one, which excludes another cause.
    """

    signal: str
    value: ApiNumber
    bound: str
    threshold: ApiNumber
    away_from: float | None
    since_step: int
    rules_out: bool = False


class MissingInfo(AnswerInfo, frozen=True, kw_only=True):
    """A signal that is unknown, and what would provide it."""

    signal: str
    provide: str
    more_steps: bool = False


class MeasurementInfo(AnswerInfo, frozen=True, kw_only=True):
    """The newest value of a signal that was measured."""

    signal: str
    value: ApiNumber


class RemedyInfo(AnswerInfo, frozen=True, kw_only=True):
    """The smallest fix, in words and as options of verl and of TRL, and what to do if it does not help."""

    fix: str
    verl: dict[str, str]
    trl: dict[str, str]
    persists: str
    verl_next: dict[str, str] = field(default_factory=dict)
    trl_next: dict[str, str] = field(default_factory=dict)


class FindingInfo(AnswerInfo, frozen=True, kw_only=True):
    """A finding by its letter: observed with its evidence, or unknown with the signals it lacks."""

    finding: str
    title: str
    since_step: int | None
    evidence: tuple[EvidenceInfo, ...]
    missing: tuple[MissingInfo, ...]
    fix: str


class EscalationInfo(AnswerInfo, frozen=True, kw_only=True):
    """The recommended stage of correction, and why."""

    stage: str
    advice: str
    evidence: tuple[EvidenceInfo, ...]
    missing: tuple[MissingInfo, ...]


class QuadrantInfo(AnswerInfo, frozen=True, kw_only=True):
    """The kind of correction that can work."""

    quadrant: str
    advice: str


class IgnoredInfo(AnswerInfo, frozen=True, kw_only=True):
    """A name in a log line that was ignored, and why."""

    name: str
    why: str


class CircumstanceInfo(AnswerInfo, frozen=True, kw_only=True):
    """A firing alert about the run itself rather than its signals, such as a stall."""

    rule: str
    severity: str
    since_step: int
    summary: str
    fix: str


class DiagnosisInfo(AnswerInfo, frozen=True, kw_only=True):
    """What is wrong at the newest step: `primary` is the letter of the cause, `observed` all findings, the cause first.

    `assurance` is what is known of a run without findings.
    """

    step: int
    steps: int
    primary: str
    title: str
    meaning: str | None = None
    since_step: int | None = None
    last_good_step: int | None = None
    incident: IncidentInfo | None = None
    assurance: str = "unknown"
    needs_more_steps: bool = False
    agreement: tuple[MeasurementInfo, ...] = ()
    remedy: RemedyInfo | None
    circumstances: tuple[CircumstanceInfo, ...]
    observed: tuple[FindingInfo, ...]
    unknown: tuple[FindingInfo, ...]
    shortfall: tuple[EvidenceInfo, ...]
    quadrant: QuadrantInfo
    escalation: EscalationInfo
    ignored: tuple[IgnoredInfo, ...]
    framework: str | None = None
