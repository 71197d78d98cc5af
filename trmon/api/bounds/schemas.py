"""Response schema of error bounds."""

from __future__ import annotations

from pydantic import Field

from trmon.api.http.json_numbers import Number
from trmon.api.http.response_model import ResponseModel


class BoundsOut(ResponseModel):
    """Bounds on the difference between surrogate and objective, for rewards in [0, 1]; [TRM], section 3."""

    trpo: Number
    pinsker_marginal: Number
    mixed: Number
    adaptive: Number
    vacuous: bool | None = Field(description="Whether the bound exceeds the range of rewards and certifies nothing.")
    max_delta: Number | None = Field(description="Largest token KL that keeps the bound within the budget, in nats.")
