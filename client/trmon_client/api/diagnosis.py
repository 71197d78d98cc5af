"""The diagnosis of a run as a service answers it: the cause, its evidence and the remedy."""

from __future__ import annotations

from typing import Any

from msgspec import field

from trmon_client.api.answers import AnswerInfo, ApiNumber
from trmon_client.api.runs import FleetRiskInfo, IncidentInfo


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
    """The smallest fix, in words and as options of verl and of TRL, and what to do if it does not help.

    Options without a known value are apart, with words in place of values.
    """

    fix: str
    verl: dict[str, str]
    trl: dict[str, str]
    persists: str
    verl_next: dict[str, str] = field(default_factory=dict)
    trl_next: dict[str, str] = field(default_factory=dict)
    verl_in_words: dict[str, str] = field(default_factory=dict)
    trl_in_words: dict[str, str] = field(default_factory=dict)
    verl_next_in_words: dict[str, str] = field(default_factory=dict)
    trl_next_in_words: dict[str, str] = field(default_factory=dict)


class FindingInfo(AnswerInfo, frozen=True, kw_only=True):
    """A finding by its letter: observed with its evidence, or unknown with the signals it lacks.

    `form` is the side on which it left its range, such as `entropy_collapse`; None if it has no forms.
    """

    finding: str
    form: str | None = None
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


class RiskDriverInfo(AnswerInfo, frozen=True, kw_only=True):
    """What an input adds to the log-odds of a collapse; below 0 it speaks against one."""

    input: str
    log_odds: float
    words: str


class RiskModelInfo(AnswerInfo, frozen=True, kw_only=True):
    """The model that made an estimate, and on what it was fitted."""

    name: str
    fitted_on: dict[str, Any]


class CollapseRiskInfo(FleetRiskInfo, frozen=True, kw_only=True):
    """The probability that a collapse begins within `horizon_steps`, and why: a prediction, not a finding.

    `missing` inputs are not sent by the run; `outside` ones are beyond what the model was fitted to.
    """

    horizon_steps: int
    drivers: tuple[RiskDriverInfo, ...]
    missing: tuple[str, ...]
    outside: tuple[str, ...]
    model: RiskModelInfo
    warn_at: float
    page_at: float


class DiagnosisInfo(AnswerInfo, frozen=True, kw_only=True):
    """What is wrong at the newest step: `primary` is the letter of the cause, `observed` all findings, the cause first.

    `assurance` is what is known of a run without findings; `has_ended`: the remedy is for the next run.
    """

    step: int
    steps: int
    primary: str
    form: str | None = None
    title: str
    meaning: str | None = None
    since_step: int | None = None
    last_good_step: int | None = None
    incident: IncidentInfo | None = None
    assurance: str = "unknown"
    needs_more_steps: bool = False
    agreement: tuple[MeasurementInfo, ...] = ()
    collapse_risk: CollapseRiskInfo | None = None
    has_ended: bool = False
    remedy: RemedyInfo | None
    circumstances: tuple[CircumstanceInfo, ...]
    observed: tuple[FindingInfo, ...]
    unknown: tuple[FindingInfo, ...]
    shortfall: tuple[EvidenceInfo, ...]
    quadrant: QuadrantInfo
    escalation: EscalationInfo
    ignored: tuple[IgnoredInfo, ...]
    framework: str | None = None
