"""Error bounds of a horizon and its divergences."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Query

from trmon.api.http.answers import AnswerRoute
from trmon.api.http.auth import require_reader
from trmon.domain.errors import InvalidInput
from trmon_client.api.policies import BoundsInfo
from trmon_client.core.bounds import error_bounds, max_delta

router = APIRouter(
    prefix="/api/v1/bounds", tags=["bounds"], dependencies=[Depends(require_reader)], route_class=AnswerRoute
)


@router.get("")
async def get_bounds(
    horizon: Annotated[int, Query(ge=1, le=1 << 32, description="Length of the longest response, in tokens.")],
    kl_max: Annotated[float, Query(description="Largest token KL, in nats.")],
    kl_seq: Annotated[float, Query(description="Mean KL of whole sequences, in nats.")],
    budget: Annotated[float | None, Query(description="Largest acceptable bound, in units of reward.")] = None,
) -> BoundsInfo:
    """Return the error bounds of [TRM], and the threshold that keeps them within a budget."""
    try:
        bounds = error_bounds(horizon=horizon, kl_max=kl_max, kl_seq=kl_seq)
        delta = None if budget is None else max_delta(horizon=horizon, budget=budget, kl_seq=kl_seq)
    except ValueError as error:
        raise InvalidInput(str(error).split(" ", 1)[0], str(error)) from error
    return BoundsInfo.from_fields(bounds, max_delta=delta)
