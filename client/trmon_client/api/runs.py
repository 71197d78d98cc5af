"""Runs as a service describes them: their state, their verdict, their newest incident, and notes on them."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import UNSET, UnsetType

from trmon_client.api.alerts import AlertInfo
from trmon_client.api.answers import (
    AnswerInfo,
    ApiNumber,
    Resolution,
    RunState,
    Severity,
    Urgency,
    VerdictKind,
    says,
)
from trmon_client.api.diagnosis import BehindInfo, DiagnosisInfo, FleetRiskInfo, IncidentInfo
from trmon_client.api.policies import AdaptationInfo, PolicyInfo


class VerdictInfo(AnswerInfo, frozen=True, kw_only=True):
    """The verdict on a run, and why."""

    kind: VerdictKind
    need: Annotated[Urgency, says("How urgent the run is; none once its alerts are acknowledged.")]
    why: str
    since_step: int | None
    todo: Annotated[str | None, says("The first thing to do; null if no action is needed.")]
    cause: Annotated[str, says("The finding or rule that leads its problems; empty without any.")] = ""
    counts_as: Annotated[str, says("The words under which the run is counted, such as `needs you`, `to watch`.")] = ""


class OpenAlertInfo(AnswerInfo, frozen=True, kw_only=True):
    """A firing alert of a run, or its open incident, and who acknowledged it."""

    rule: Annotated[str, says("The rule; of an incident, its cause.")]
    title: Annotated[str, says("The same in words.")] = ""
    severity: Severity
    step: Annotated[int, says("Where it began.")]
    acked_by: str | None


class SparklineInfo(AnswerInfo, frozen=True, kw_only=True):
    """A signal over the newest steps in a few points; null where the value is unknown."""

    first_step: int
    last_step: int
    values: tuple[float | None, ...]
    healthy_most: Annotated[float | None, says("The upper end of its healthy range; null without one.")] = None


class NamedRun(AnswerInfo, frozen=True, kw_only=True):
    """A run of a project."""

    project: str
    run: str

    @property
    def name(self) -> str:
        """The run as PROJECT/RUN, which every method of `Service` takes."""
        return f"{self.project}/{self.run}"


class RunStatus(NamedRun, frozen=True, kw_only=True):
    """A run's verdict, open alerts and recent course."""

    state: RunState
    owner: str | None
    tags: tuple[str, ...]
    archived: bool
    step: int | None
    last_report_at: float | None
    expected_step_seconds: Annotated[float | None, says("The median duration of the newest steps.")]
    end_phrase: Annotated[str | None, says("How the run ended in a few words, or that no exit was seen.")] = None
    warnings: Annotated[tuple[str, ...], says("Mistakes in the trainer's calls.")] = ()
    judged_step: Annotated[
        int | None,
        says("The newest step that the verdict covers: one is judged when the next is closed; null before the first."),
    ] = None
    judged_at: Annotated[float | None, says("When the verdict was made; null if that is not known.")] = None
    behind: Annotated[BehindInfo | None, says("How far the judging is behind; null up to 5 seconds.")] = None
    verdict: VerdictInfo
    incident: Annotated[IncidentInfo | None, says("The newest incident; null without one.")] = None
    alerts: Annotated[
        tuple[OpenAlertInfo, ...], says("The firing alerts; an open incident is one, with all that joined it.")
    ]
    mask_rate: Annotated[ApiNumber | None, says("At the newest step.")]
    collapse_risk: Annotated[FleetRiskInfo | None, says("At the newest step; null where the predictor is silent.")] = (
        None
    )
    reward: SparklineInfo | None
    kl: Annotated[SparklineInfo | None, says("`kl_k3` of the primary pair.")]


class NoteInfo(AnswerInfo, frozen=True, kw_only=True):
    """A note on a run, or on one of its steps."""

    id: int
    step: int | None
    author: str
    text: str
    at: float


class RunEndInfo(AnswerInfo, frozen=True, kw_only=True):
    """How a run ended, as its trainer reported it."""

    at: float
    rank: Annotated[int, says("The rank that reported the end.")]
    reason: Annotated[
        str,
        says("closed, exited (close() was not called), exception, exit_code or signal; empty from older clients."),
    ]
    phrase: str
    error: Annotated[str, says("The exception's type and message, in one line.")]
    traceback: Annotated[str, says("The exception's innermost frames.")]
    exit_code: int | None
    signal: str


class RunWarningInfo(AnswerInfo, frozen=True, kw_only=True):
    """A mistake in the trainer's calls, which the client also wrote to stderr."""

    kind: str
    text: str
    at: float


class CheckpointInfo(AnswerInfo, frozen=True, kw_only=True):
    """A checkpoint that the trainer has reported, and has not deleted as far as it told."""

    step: int
    path: str


class RunInfo(NamedRun, frozen=True, kw_only=True):
    """A run; times are seconds since the epoch on the server's clock."""

    state: RunState
    owner: str | None
    tags: tuple[str, ...]
    config: dict[str, Any]
    mode: str
    created_at: float
    last_report_at: float | None
    last_step: int | None
    archived: bool
    mask_rate: Annotated[ApiNumber | None, says("At the newest step; null for an inactive run.")]
    firing: Annotated[tuple[str, ...], says("The rules whose alerts fire on the run; of an incident, its cause.")]
    incident: Annotated[IncidentInfo | None, says("The newest incident; null without one.")] = None
    end: Annotated[RunEndInfo | None, says("Null while the run continues, and where no exit was seen.")]
    end_phrase: Annotated[str | None, says("How the run ended in a few words, or that no exit was seen.")]
    warnings: tuple[RunWarningInfo, ...]
    checkpoints: Annotated[
        tuple[CheckpointInfo, ...], says("By step; of more than 32 every second one of the older is left out.")
    ] = ()


class AttemptInfo(AnswerInfo, frozen=True, kw_only=True):
    """One start of a run's trainer."""

    id: int
    name: str
    ordinal: int
    started_at: float
    world_size: int
    fork_of: Annotated[int | None, says("The attempt that this one branched from; null for none.")]
    fork_reason: Annotated[
        Resolution | None,
        says(
            "Why: two_trainers reported at once under one name, the trainer went_back in steps, or that "
            "attempt had moved to the lake."
        ),
    ]
    ranks_unverified: bool


class CourseMarkInfo(AnswerInfo, frozen=True, kw_only=True):
    """What happened at a step: a restart, another configuration, a jump of the learning rate, or a checkpoint."""

    step: int
    kind: Annotated[str, says("restart, change or checkpoint.")]
    words: str


class RunDetails(RunInfo, frozen=True, kw_only=True):
    """A run with its row of the fleet, and with the parts that the request includes; the newest items come first."""

    status: RunStatus
    diagnosis: Annotated[
        DiagnosisInfo | None | UnsetType, says("Null before the first step; absent unless included.")
    ] = UNSET
    alerts: Annotated[tuple[AlertInfo, ...] | UnsetType, says("Every firing alert, then the newest resolved ones.")] = (
        UNSET
    )
    policies: tuple[PolicyInfo, ...] | UnsetType = UNSET
    attempts: tuple[AttemptInfo, ...] | UnsetType = UNSET
    notes: tuple[NoteInfo, ...] | UnsetType = UNSET
    adaptation: AdaptationInfo | UnsetType = UNSET
