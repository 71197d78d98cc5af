"""Runs as a service describes them: their state, their verdict and their newest incident."""

from __future__ import annotations

from typing import Any

from trmon_client.api.answers import AnswerInfo, ApiNumber


class RunEndInfo(AnswerInfo, frozen=True, kw_only=True):
    """How a run ended, as its trainer reported it."""

    at: float
    rank: int
    reason: str
    phrase: str
    error: str
    traceback: str
    exit_code: int | None
    signal: str


class RunWarningInfo(AnswerInfo, frozen=True, kw_only=True):
    """A mistake in the trainer's calls."""

    kind: str
    text: str
    at: float


class IncidentInfo(AnswerInfo, frozen=True, kw_only=True):
    """The newest illness of a run, from its first finding to its end; `state` is firing while it is open."""

    finding: str | None
    title: str
    cause: str
    severity: str
    since_step: int
    last_good_step: int | None
    state: str
    opened_at: float
    ended_at: float | None
    ended_with_run: bool
    fix: str
    identity: str
    acked_by: str | None


class RunInfo(AnswerInfo, frozen=True, kw_only=True):
    """A run; `state` is running, paused, stalled, crashed or finished; `firing` are the rules whose alerts fire."""

    project: str
    run: str
    state: str
    owner: str | None
    tags: tuple[str, ...]
    config: dict[str, Any]
    mode: str
    created_at: float
    last_report_at: float | None
    last_step: int | None
    archived: bool
    mask_rate: ApiNumber | None
    firing: tuple[str, ...]
    incident: IncidentInfo | None = None
    end: RunEndInfo | None
    end_phrase: str | None
    warnings: tuple[RunWarningInfo, ...]

    @property
    def name(self) -> str:
        """The run as PROJECT/RUN, which every method of `Service` takes."""
        return f"{self.project}/{self.run}"


class VerdictInfo(AnswerInfo, frozen=True, kw_only=True):
    """The verdict on a run, and why; `need` is now, soon or none; `todo` the first thing to do, if anything."""

    kind: str
    need: str
    why: str
    since_step: int | None
    todo: str | None


class OpenAlertInfo(AnswerInfo, frozen=True, kw_only=True):
    """A firing alert of a run, and who acknowledged it."""

    rule: str
    severity: str
    step: int
    acked_by: str | None


class SparklineInfo(AnswerInfo, frozen=True, kw_only=True):
    """A signal over the newest steps in a few points; None where the value is unknown."""

    first_step: int
    last_step: int
    values: tuple[float | None, ...]


class FleetRiskInfo(AnswerInfo, frozen=True, kw_only=True):
    """The risk that a collapse begins within 200 steps; `level` is low, warn, page, or past if none can come any more.

    `driven_by` are the inputs that raise it most, in words.
    """

    probability: float
    level: str
    driven_by: tuple[str, ...]


class RunStatus(AnswerInfo, frozen=True, kw_only=True):
    """A run's verdict, open alerts and recent course; `kl` is `kl_k3` of the primary pair."""

    project: str
    run: str
    state: str
    owner: str | None
    tags: tuple[str, ...]
    archived: bool = False
    step: int | None
    last_report_at: float | None
    expected_step_seconds: float | None
    end_phrase: str | None = None
    warnings: tuple[str, ...] = ()
    judged_step: int | None = None
    verdict: VerdictInfo
    incident: IncidentInfo | None = None
    alerts: tuple[OpenAlertInfo, ...]
    mask_rate: ApiNumber | None
    collapse_risk: FleetRiskInfo | None = None
    reward: SparklineInfo | None
    kl: SparklineInfo | None

    @property
    def name(self) -> str:
        """The run as PROJECT/RUN."""
        return f"{self.project}/{self.run}"
