"""Error bounds of a horizon and its divergences, for people who choose thresholds."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Query
from pydantic import BaseModel, Field

from trmon.api.http.dependencies import require_reader
from trmon.api.http.json_numbers import Number
from trmon.domain.model.errors import InvalidInput
from trmon_client.core.bounds.surrogate_error import error_bounds, max_delta

router = APIRouter(prefix="/api/v1/bounds", tags=["bounds"], dependencies=[Depends(require_reader)])


class BoundsOut(BaseModel):
    """Bounds on the distance of surrogate and objective, for rewards in [0, 1]; [TRM], section 3."""

    trpo: Number
    pinsker_marginal: Number
    mixed: Number
    adaptive: Number
    vacuous: bool | None = Field(description="The bound exceeds the whole range of rewards and certifies nothing.")
    max_delta: Number | None = Field(description="Largest token KL that keeps the bound within the budget, in nats.")


@router.get("")
async def get_bounds(
    horizon: Annotated[int, Query(ge=1, le=1 << 32, description="Tokens of the longest response.")],
    kl_max: Annotated[float, Query(description="Largest token KL, in nats.")],
    kl_seq: Annotated[float, Query(description="Mean KL of whole sequences, in nats.")],
    budget: Annotated[float | None, Query(description="Largest bound to allow, in reward.")] = None,
) -> BoundsOut:
    """Return the error bounds of [TRM], and the threshold that a budget asks for."""
    try:
        bounds = error_bounds(horizon=horizon, kl_max=kl_max, kl_seq=kl_seq)
        delta = None if budget is None else max_delta(horizon=horizon, budget=budget, kl_seq=kl_seq)
    except ValueError as error:
        raise InvalidInput(str(error).split(" ", 1)[0], str(error)) from error
    return BoundsOut(
        trpo=bounds.trpo,
        pinsker_marginal=bounds.pinsker_marginal,
        mixed=bounds.mixed,
        adaptive=bounds.adaptive,
        vacuous=bounds.vacuous,
        max_delta=delta,
    )
