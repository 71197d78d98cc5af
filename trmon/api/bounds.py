"""Error bounds of a horizon and its divergences."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Query
from pydantic import Field

from trmon.api.http.auth import require_reader
from trmon.api.http.json_numbers import Number
from trmon.api.http.response_model import ResponseModel
from trmon.domain.model.errors import InvalidInput
from trmon_client.core.bounds import error_bounds, max_delta


class BoundsOut(ResponseModel):
    """Bounds on the difference between surrogate and objective, for rewards in [0, 1]; [TRM], section 3."""

    trpo: Number
    pinsker_marginal: Number
    mixed: Number
    adaptive: Number
    vacuous: bool | None = Field(description="Whether the bound exceeds the range of rewards and certifies nothing.")
    max_delta: Number | None = Field(description="Largest token KL that keeps the bound within the budget, in nats.")


router = APIRouter(prefix="/api/v1/bounds", tags=["bounds"], dependencies=[Depends(require_reader)])


@router.get("")
async def get_bounds(
    horizon: Annotated[int, Query(ge=1, le=1 << 32, description="Length of the longest response, in tokens.")],
    kl_max: Annotated[float, Query(description="Largest token KL, in nats.")],
    kl_seq: Annotated[float, Query(description="Mean KL of whole sequences, in nats.")],
    budget: Annotated[float | None, Query(description="Largest acceptable bound, in units of reward.")] = None,
) -> BoundsOut:
    """Return the error bounds of [TRM], and the threshold that keeps them within a budget."""
    try:
        bounds = error_bounds(horizon=horizon, kl_max=kl_max, kl_seq=kl_seq)
        delta = None if budget is None else max_delta(horizon=horizon, budget=budget, kl_seq=kl_seq)
    except ValueError as error:
        raise InvalidInput(str(error).split(" ", 1)[0], str(error)) from error
    return BoundsOut.from_fields(bounds, max_delta=delta)
