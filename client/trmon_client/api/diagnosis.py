"""The diagnosis of a run as a service answers it: the cause, its evidence and the remedy."""

from __future__ import annotations

from typing import Annotated, Any

from trmon_client.api.answers import AlertState, AnswerInfo, ApiNumber, RiskLevel, Severity, Word, says


class BehindInfo(AnswerInfo, frozen=True, kw_only=True):
    """How far the judging of a run is behind what the service received."""

    judged_step: Annotated[int | None, says("The newest step that the verdict covers; null before the first.")]
    newest_step: Annotated[int | None, says("The newest step received; null for a run of scalars alone.")]
    seconds: Annotated[float, says("How long the oldest message has waited that the worker could process.")]
    words: Annotated[str, says("As a phrase: `judged to step 98 of 140, 37 s behind`.")]


class IncidentInfo(AnswerInfo, frozen=True, kw_only=True):
    """The newest illness of a run, from its first finding to its end; its first step follows the finding that leads."""

    title: str
    cause: Annotated[str, says("The finding, or else the rule, that leads it.")]
    severity: Annotated[Severity, says("The worst so far.")]
    since_step: int
    last_good_step: Annotated[int | None, says("The last good step before it; null if it began with the run.")]
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
    calibration: Annotated[str, says("What the number is worth for your trainer; empty of an older service.")] = ""


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
    model: RiskModelInfo
    warn_at: Annotated[float, says("The probability that a tenth of the runs without a collapse reached.")]
    page_at: Annotated[float, says("The probability that a twentieth of the runs without a collapse reached.")]


class EvidenceInfo(AnswerInfo, frozen=True, kw_only=True):
    """A comparison of a finding that holds."""

    measure: Annotated[str, says("What is compared, such as kl_k3.over_start.")]
    signal: Annotated[str, says("The signal that it is of, by its full name.")]
    words: Annotated[str, says("The comparison in words, with its limit and the value before.")]
    value: ApiNumber
    side: Annotated[str, says("How the value compares with the limit: >, >=, < or <=.")]
    limit: float
    then: Annotated[float | None, says("The signal before the finding began; null if it is not known.")] = None
    now: Annotated[float | None, says("The signal's newest value.")] = None
    is_on_scale: Annotated[bool, says("Whether it is of the signal itself, not of its growth or distance.")] = False


class FindingInfo(AnswerInfo, frozen=True, kw_only=True):
    """A finding that stands, or that has ended."""

    finding: Annotated[str, says("Its id, such as engine_mismatch.")]
    clause: Annotated[str, says("Which of its clauses showed it.")]
    title: str
    meaning: str
    severity: Severity
    headline: Annotated[str, says("Title and steps in words; those of the illness where the finding leads.")]
    chart: Annotated[str, says("The signal to look at, by its full name.")]
    since_step: Annotated[int, says("The step at which it began.")]
    since_attempt: int
    found_step: Annotated[int, says("The step at which it was found.")]
    beyond_step: Annotated[
        int | None, says("Where it began as a ramp, the first step beyond the limit; else null.")
    ] = None
    from_start: Annotated[bool, says("Whether it stood from the run's first step: then no step was good.")] = False
    last_good_step: Annotated[
        int | None, says("The last good step before it; null if there is none or it is not known.")
    ]
    last_good_attempt: int | None
    ended_step: Annotated[int | None, says("The step at which it ended; null while it stands.")] = None
    evidence: Annotated[tuple[EvidenceInfo, ...], says("The comparisons that hold, the deciding one first.")]


class OutOfRangeInfo(AnswerInfo, frozen=True, kw_only=True):
    """A signal whose newest values are outside their healthy range."""

    signal: str
    words: str
    value: float
    range: Annotated[str, says("The healthy range, such as < 0.005.")]


class CourseInfo(AnswerInfo, frozen=True, kw_only=True):
    """How a signal went: the means of its first and of its last steps."""

    signal: str
    words: str
    first: float
    last: float
    trend: Annotated[str | None, says("Of a reward over 40 steps or more: rose, flat or fell.")] = None


class UnmeasuredInfo(AnswerInfo, frozen=True, kw_only=True):
    """What is not measured, and how to measure it."""

    what: str
    how: str


class RemedyInfo(AnswerInfo, frozen=True, kw_only=True):
    """What to change first, in words and in the options of the run's own framework, and what to do if it persists."""

    first: Annotated[str, says("What to do now; once the run has ended, what to do in the next one.")]
    then: Annotated[str, says("What to do if the finding persists; empty if there is nothing else.")]
    options: Annotated[dict[str, str], says("Options to set now, with their values.")]
    options_in_words: Annotated[dict[str, str], says("Options whose values do not follow from what is known.")]
    then_options: Annotated[dict[str, str], says("Options to set if it persists.")]
    then_options_in_words: Annotated[dict[str, str], says("Such options without a known value.")]
    not_known: Annotated[str, says("What is lacking to name values; empty if nothing is.")] = ""
    release: Annotated[str, says("The release of the framework that has the options.")] = ""
    to_paste: Annotated[tuple[str, ...], says("The options as the framework writes them.")] = ()
    checkpoint: Annotated[
        str, says("The newest checkpoint by the last good step, or that there is none; empty without such a step.")
    ] = ""
    checkpoint_step: Annotated[int | None, says("Its step; null unless the trainer has reported it.")] = None
    checkpoint_path: Annotated[str | None, says("Where the trainer has saved it.")] = None


class AnswersInfo(AnswerInfo, frozen=True, kw_only=True):
    """How to read the run's worst answers."""

    words: str
    command: Annotated[str, says("Shows them on the trainer's machine, or turns its recorder on.")]
    are_recorded: Annotated[bool, says("Whether the recorder runs.")] = False


class RunbookStageInfo(AnswerInfo, frozen=True, kw_only=True):
    """A stage of a runbook: confirm, rule out, mitigate or verify."""

    stage: str
    lines: tuple[str, ...]
    options: Annotated[tuple[str, ...], says("Options to set, as the run's framework writes them.")] = ()
    commands: Annotated[tuple[str, ...], says("Commands to paste; without a run, with names in their place.")]


class RunbookInfo(AnswerInfo, frozen=True, kw_only=True):
    """What to do about a run's problem, with its values: confirm, rule out, mitigate, verify."""

    cause: Annotated[str, says("The finding or rule.")]
    title: str
    headline: Annotated[str, says("The verdict in one line.")]
    stages: tuple[RunbookStageInfo, ...]
    answers: Annotated[AnswersInfo | None, says("How to read the worst answers; null for a log.")]


class CircumstanceInfo(AnswerInfo, frozen=True, kw_only=True):
    """A firing alert about the run itself rather than its signals, such as a stall or two trainers at once."""

    rule: str
    severity: Severity
    since_step: int
    summary: str
    fix: str


class DiagnosisInfo(AnswerInfo, frozen=True, kw_only=True):
    """What the judge says of a run at its newest judged step."""

    step: Annotated[int, says("The newest step that is judged.")]
    attempt: int
    rows: Annotated[int, says("How many steps were judged.")]
    word: Annotated[Word, says("The word on the run, the first that holds.")]
    sentence: Annotated[str, says("The verdict in words.")]
    since_step: Annotated[int | None, says("The step at which the illness began; null without a finding.")] = None
    since_attempt: int | None = None
    last_good_step: Annotated[
        int | None, says("The last good step before the illness; null without one, or if it is not known.")
    ] = None
    last_good_attempt: int | None = None
    interval: Annotated[
        tuple[int, int] | None, says("The steps in which the run broke; null without a finding, or one that predicts.")
    ] = None
    findings: Annotated[tuple[FindingInfo, ...], says("The findings that stand, the one that leads first.")]
    over: Annotated[tuple[FindingInfo, ...], says("The findings that have ended.")]
    outside: Annotated[tuple[OutOfRangeInfo, ...], says("The signals outside their healthy ranges.")]
    reward: Annotated[CourseInfo | None, says("The course of the reward; null without one.")] = None
    changed: Annotated[tuple[CourseInfo, ...], says("With too few steps: the signals that changed by half.")] = ()
    notes: tuple[str, ...] = ()
    unmeasured: Annotated[tuple[UnmeasuredInfo, ...], says("What could be judged and is not measured.")] = ()
    remedy: Annotated[RemedyInfo | None, says("What to change; null without a finding.")]
    incident: Annotated[IncidentInfo | None, says("The newest incident of the run; null without one.")] = None
    collapse_risk: Annotated[
        CollapseRiskInfo | None, says("The risk at the newest step; null where the predictor is silent.")
    ] = None
    circumstances: Annotated[
        tuple[CircumstanceInfo, ...],
        says("Firing alerts about the run itself: stalled, crashed, two trainers; empty for a log."),
    ] = ()
    answers: Annotated[
        AnswersInfo | None, says("How to read the worst answers; null where nothing is found, and for a log.")
    ] = None
    has_ended: Annotated[bool, says("Whether the run has ended, so that the remedy is for the next one.")] = False
    framework: Annotated[str | None, says("The framework of the run's options or of a log's names.")] = None
