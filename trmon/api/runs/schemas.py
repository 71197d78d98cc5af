"""Request and response schemas of runs."""

from __future__ import annotations

from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field

from trmon.api.http.json_numbers import Number
from trmon.api.http.response_model import ResponseModel
from trmon.api.incidents.schemas import IncidentOut
from trmon.domain.alerts.alert import AlertState
from trmon.domain.alerts.listed_alert import ListedAlert
from trmon.domain.runs.attempts import Resolution
from trmon.domain.runs.run import Run, RunState
from trmon.views.run_view_cache import RunView


class RunEndOut(ResponseModel):
    """How a run ended, as its trainer reported it."""

    at: float
    rank: int = Field(description="The rank that reported the end.")
    reason: str = Field(
        description="closed, exited (close() was not called), exception, exit_code or signal; empty from older clients."
    )
    phrase: str
    error: str = Field(description="The exception's type and message, in one line.")
    traceback: str = Field(description="The exception's innermost frames.")
    exit_code: int | None
    signal: str


class RunWarningOut(ResponseModel):
    """A mistake in the trainer's calls, which the client also wrote to stderr."""

    kind: str
    text: str
    at: float


class RunOut(ResponseModel):
    """A run; times are seconds since the epoch on the server's clock."""

    project: str
    run: str
    state: RunState
    owner: str | None
    tags: list[str]
    config: dict[str, Any]
    mode: str
    created_at: float
    last_report_at: float | None
    last_step: int | None
    archived: bool
    mask_rate: Number | None = Field(description="At the newest step; null for an inactive run.")
    firing: list[str] = Field(description="The rules whose alerts fire on the run.")
    incident: IncidentOut | None = Field(None, description="The newest incident; null without one.")
    end: RunEndOut | None = Field(description="Null while the run goes on, and where no exit was seen.")
    end_phrase: str | None = Field(description="How the run ended in a few words, or that no exit was seen.")
    warnings: list[RunWarningOut]

    @classmethod
    def of(cls, run: Run, view: RunView | None, *, incident: ListedAlert | None = None) -> Self:
        """Return the response for a run, with its view if it is active, and its newest incident."""
        firing = [alert for alert in view.alerts if alert.state is AlertState.FIRING] if view else []
        return cls.from_fields(
            run,
            project=run.key.project,
            run=run.key.run,
            mask_rate=view.signals.get("mask_rate") if view else None,
            firing=[alert.rule for alert in firing if not alert.is_incident],
            incident=IncidentOut.of_newest(incident),
            end=RunEndOut.from_fields(run.ending) if run.ending is not None and run.state.ended else None,
            warnings=[RunWarningOut.from_fields(warning) for warning in run.warnings],
        )


class AttemptOut(ResponseModel):
    """One start of a run's trainer."""

    id: int
    name: str
    ordinal: int
    started_at: float
    world_size: int
    fork_of: int | None = Field(description="The attempt that this one branched from; null for none.")
    fork_reason: Resolution | None = Field(
        description="Why: two_trainers reported at once under one name, the trainer went_back in steps, or that "
        "attempt had moved to the lake."
    )
    ranks_unverified: bool


class RunChange(BaseModel):
    """Changes to a run; omitted fields stay as they are."""

    model_config = ConfigDict(extra="forbid")

    name: str | None = Field(
        None, description="A new name; a trainer that reports under the old name starts a new run."
    )
    tags: list[str] | None = Field(None, max_length=64, description="In place of all former tags.")
    add_tags: list[str] = Field([], max_length=64, description="In addition to the run's tags.")
    remove_tags: list[str] = Field([], max_length=64, description="A tag that the run does not have is ignored.")
    owner: str | None = Field(None, min_length=1, max_length=128)
    archived: bool | None = None
