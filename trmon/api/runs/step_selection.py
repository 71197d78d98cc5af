"""Dependency that selects evenly spaced steps of a run, for routes that read stored batches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Query

from trmon.api.http.components import Service
from trmon.api.http.dependencies import Reader
from trmon.api.runs.routes import Named
from trmon.domain.model.identity import BatchKey

MAX_POINTS = 200

FromStep = Annotated[int | None, Query(alias="from", ge=0, lt=1 << 62)]
ToStep = Annotated[int | None, Query(alias="to", ge=0, lt=1 << 62)]
OfAttempt = Annotated[int | None, Query(ge=0, lt=1 << 62, description="Only this attempt, by its id.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepSelection:
    """A run, and the gauge rows of the selected steps, oldest first."""

    run_id: int
    batches: list[BatchKey]


def _select_steps(
    key: Named,
    access: Reader,
    service: Service,
    from_step: FromStep = None,
    to_step: ToStep = None,
    attempt_id: OfAttempt = None,
    points: Annotated[int, Query(ge=1, le=MAX_POINTS, description="Maximum number of steps, evenly spaced.")] = 100,
) -> StepSelection:
    run = service.store.runs.get(key, access=access)
    steps = service.store.signals.series(
        run.id, names=(), access=access, attempt_id=attempt_id, from_step=from_step, to_step=to_step, points=points
    )
    return StepSelection(run_id=run.id, batches=steps.batches())


SelectedSteps = Annotated[StepSelection, Depends(_select_steps)]
"""The steps that a request selects. Errors: NotFound for a run that the caller may not see."""
