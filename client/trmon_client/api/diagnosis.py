"""The diagnosis of a run as a service answers it: the cause, its evidence and the remedy."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import field

from trmon_client.api.answers import (
    AlertState,
    AnswerInfo,
    ApiNumber,
    Assurance,
    Finding,
    FindingForm,
    Quadrant,
    RiskLevel,
    Severity,
    Stage,
    ThresholdSide,
    says,
)


class IncidentInfo(AnswerInfo, frozen=True, kw_only=True):
    """The newest illness of a run, from its first finding to its end; the first step never changes."""

    finding: Annotated[str | None, says("The letter of the finding that leads it; null if only symptoms are known.")]
    title: str
    cause: Annotated[str, says("The rule that leads it.")]
    severity: Annotated[Severity, says("The worst so far.")]
    since_step: int
    last_good_step: Annotated[int | None, says("The last step before it; null if it began with the run.")]
    state: Annotated[AlertState, says("firing while it is open, else resolved.")]
    opened_at: float
    ended_at: float | None
    ended_with_run: Annotated[bool, says("Whether it was open when the run finished (ended ill).")]
    fix: Annotated[str, says("The first thing to do.")]
    identity: Annotated[str, says("The identity of its alert, to acknowledge it.")]
    acked_by: str | None


class FleetRiskInfo(AnswerInfo, frozen=True, kw_only=True):
    """The risk of a collapse in brief."""

    probability: float
    level: Annotated[
        RiskLevel,
        says(
            "How the probability compares with the model's thresholds; past once the reward has collapsed or "
            "the run has finished."
        ),
    ]
    driven_by: Annotated[tuple[str, ...], says("The inputs that raise it most, in words; at most two.")]


class RiskDriverInfo(AnswerInfo, frozen=True, kw_only=True):
    """What an input adds to the log-odds of a collapse."""

    input: str
    log_odds: Annotated[float, says("Below 0 the input speaks against a collapse.")]
    words: Annotated[str, says("The input in words.")]


class RiskModelInfo(AnswerInfo, frozen=True, kw_only=True):
    """The model that made the estimate."""

    name: str
    fitted_on: Annotated[dict[str, Any], says("On what and how it was fitted.")]


class CollapseRiskInfo(FleetRiskInfo, frozen=True, kw_only=True):
    """The probability that a collapse begins within a number of steps, and why: a prediction, not a finding."""

    horizon_steps: int
    drivers: Annotated[tuple[RiskDriverInfo, ...], says("What each known input adds, the largest first.")]
    missing: Annotated[tuple[str, ...], says("Inputs that the model reads and the run does not send.")]
    outside: Annotated[tuple[str, ...], says("Inputs beyond the values of the runs that the model was fitted to.")]
    model: RiskModelInfo
    warn_at: Annotated[float, says("The probability that a tenth of the runs without a collapse reached.")]
    page_at: Annotated[float, says("The probability that a twentieth of the runs without a collapse reached.")]


class EvidenceInfo(AnswerInfo, frozen=True, kw_only=True):
    """A signal beyond its threshold."""

    signal: str
    value: Annotated[ApiNumber, says("The newest value beyond the threshold.")]
    bound: ThresholdSide
    threshold: ApiNumber
    away_from: Annotated[
        float | None, says("The point that the threshold is a distance from; null for an absolute threshold.")
    ]
    since_step: int
    rules_out: Annotated[
        bool, says("Whether the value is a usual one that excludes another cause; it has no limit to respect.")
    ] = False


class MissingInfo(AnswerInfo, frozen=True, kw_only=True):
    """A signal that is unknown, and what would provide it."""

    signal: str
    provide: str
    more_steps: Annotated[bool, says("Whether its inputs are sent, and only more steps are needed.")] = False


class MeasurementInfo(AnswerInfo, frozen=True, kw_only=True):
    """The newest value of a signal that was measured."""

    signal: str
    value: ApiNumber


class RemedyInfo(AnswerInfo, frozen=True, kw_only=True):
    """The smallest fix, in words and as options of verl and of TRL's GRPOConfig, and what to do if it does not help.

    Options have the values to set. Those whose values do not follow from the run's configuration are apart, with words
    in place of values, such as `half of what it is`.
    """

    fix: str
    verl: dict[str, str]
    trl: dict[str, str]
    persists: str
    verl_next: Annotated[dict[str, str], says("verl's options of what to try next.")] = field(default_factory=dict)
    trl_next: Annotated[dict[str, str], says("TRL's options of what to try next.")] = field(default_factory=dict)
    verl_in_words: Annotated[dict[str, str], says("verl's options without known values.")] = field(default_factory=dict)
    trl_in_words: Annotated[dict[str, str], says("TRL's options without known values.")] = field(default_factory=dict)
    verl_next_in_words: Annotated[dict[str, str], says("Those of verl to try next.")] = field(default_factory=dict)
    trl_next_in_words: Annotated[dict[str, str], says("Those of TRL to try next.")] = field(default_factory=dict)


class FindingInfo(AnswerInfo, frozen=True, kw_only=True):
    """A finding: observed with its evidence, or unknown with the signals it lacks."""

    finding: Finding
    form: Annotated[FindingForm | None, says("The side on which it left its range; null if it has no forms.")] = None
    title: str
    since_step: int | None
    evidence: tuple[EvidenceInfo, ...]
    missing: tuple[MissingInfo, ...]
    fix: str


class EscalationInfo(AnswerInfo, frozen=True, kw_only=True):
    """The recommended stage of correction, and why."""

    stage: Stage
    advice: str
    evidence: tuple[EvidenceInfo, ...]
    missing: tuple[MissingInfo, ...]


class QuadrantInfo(AnswerInfo, frozen=True, kw_only=True):
    """The kind of correction that can work, determined by tv and chi2."""

    quadrant: Quadrant
    advice: str


class IgnoredInfo(AnswerInfo, frozen=True, kw_only=True):
    """A name in a log line that was ignored, and why."""

    name: str
    why: str


class CircumstanceInfo(AnswerInfo, frozen=True, kw_only=True):
    """A firing alert about the run itself rather than its signals, such as a stall or two trainers at once."""

    rule: str
    severity: Severity
    since_step: int
    summary: str
    fix: str


class DiagnosisInfo(AnswerInfo, frozen=True, kw_only=True):
    """What is wrong at the newest step; the primary finding is the cause, the others were observed with it."""

    step: int
    steps: Annotated[int, says("The number of newest steps that were read.")]
    primary: Finding
    form: Annotated[
        FindingForm | None, says("The side on which the primary finding left its range; null if it has no forms.")
    ] = None
    title: str
    meaning: Annotated[str | None, says("What the primary finding means, in a sentence; null without one.")] = None
    since_step: Annotated[
        int | None, says("The step at which it began: that of the standing incident, else of the primary finding.")
    ] = None
    last_good_step: Annotated[int | None, says("The last step before the standing incident.")] = None
    incident: Annotated[IncidentInfo | None, says("The newest incident of the run; null without one.")] = None
    assurance: Annotated[Assurance, says("What is known of a run without findings; unknown while there is one.")]
    needs_more_steps: Annotated[
        bool, says("Whether a finding that is not known merely needs more steps: nothing was found so far.")
    ] = False
    agreement: Annotated[
        tuple[MeasurementInfo, ...], says("The newest values of signals of how far the policies agree.")
    ] = ()
    collapse_risk: Annotated[
        CollapseRiskInfo | None,
        says("The risk at the newest step; null in the first 30 steps and without any of its inputs."),
    ] = None
    has_ended: Annotated[bool, says("Whether the run has ended, so that the remedy is for the next one.")] = False
    remedy: RemedyInfo | None
    circumstances: Annotated[
        tuple[CircumstanceInfo, ...],
        says("Firing alerts about the run itself: stalled, crashed, two trainers; empty for a log line."),
    ]
    observed: Annotated[tuple[FindingInfo, ...], says("The observed findings, the cause first.")]
    unknown: Annotated[
        tuple[FindingInfo, ...], says("Findings that cannot be evaluated, and the signals that they lack.")
    ]
    shortfall: Annotated[tuple[EvidenceInfo, ...], says("Why a run without findings is not healthy.")]
    quadrant: QuadrantInfo
    escalation: EscalationInfo
    ignored: Annotated[tuple[IgnoredInfo, ...], says("Names in a log line that were ignored; empty for a run.")]
    framework: Annotated[str | None, says("The framework whose names a log has; null for a run.")] = None
