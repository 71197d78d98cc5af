"""Runs in answers and requests."""

from __future__ import annotations

from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field

from trmon.api.http.json_numbers import Number
from trmon.domain.alerts.alert import AlertState
from trmon.domain.runs.attempts import Resolution
from trmon.domain.runs.run import Attempt, Run, RunState
from trmon.views.run_view_cache import RunView


class RunOut(BaseModel):
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
    mask_rate: Number | None = Field(description="Of the newest step; null for a run that is not active.")
    firing: list[str] = Field(description="The rules whose alerts fire on the run.")

    @classmethod
    def of(cls, run: Run, view: RunView | None) -> Self:
        """Return a run, with what is live of it if it is active, as answered."""
        return cls(
            project=run.key.project,
            run=run.key.run,
            state=run.state,
            owner=run.owner,
            tags=list(run.tags),
            config=run.config,
            mode=run.mode,
            created_at=run.created_at,
            last_report_at=run.last_report_at,
            last_step=run.last_step,
            archived=run.archived,
            mask_rate=view.signals.get("mask_rate") if view else None,
            firing=[alert.rule for alert in view.alerts if alert.state is AlertState.FIRING] if view else [],
        )


class AttemptOut(BaseModel):
    """One start of a run's trainer."""

    id: int
    name: str
    ordinal: int
    started_at: float
    world_size: int
    fork_of: int | None = Field(description="The attempt it left: its trainer went back in steps, or was a second one.")
    fork_reason: Resolution | None = Field(description="Why: two_trainers spoke at once under one name, or went_back.")
    ranks_unverified: bool

    @classmethod
    def of(cls, attempt: Attempt) -> Self:
        """Return an attempt as answered."""
        return cls(
            id=attempt.id,
            name=attempt.name,
            ordinal=attempt.ordinal,
            started_at=attempt.started_at,
            world_size=attempt.world_size,
            fork_of=attempt.fork_of,
            fork_reason=attempt.fork_reason,
            ranks_unverified=attempt.ranks_unverified,
        )


class RunChange(BaseModel):
    """What to change of a run; what is not given stays."""

    model_config = ConfigDict(extra="forbid")

    name: str | None = Field(None, description="A new name; a trainer that sends under the old one begins a new run.")
    tags: list[str] | None = Field(None, max_length=64)
    owner: str | None = Field(None, min_length=1, max_length=128)
    archived: bool | None = None
