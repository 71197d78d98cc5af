"""Request and response schemas of quotas."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from trmon.api.http.response_model import ResponseModel

MAX_LIMIT = 1 << 62


class QuotaIn(BaseModel):
    """The limits of a project; a limit that is absent or null is none."""

    model_config = ConfigDict(extra="forbid")

    max_runs: int | None = Field(None, ge=0, le=MAX_LIMIT, description="Runs, archived ones included.")
    max_bytes: int | None = Field(None, ge=0, le=MAX_LIMIT, description="Stored report bytes.")
    reports_per_second: float | None = Field(
        None, gt=0, le=1e9, allow_inf_nan=False, description="Reports a second, for each API process."
    )


class QuotaOut(ResponseModel):
    """The limits of a project; null is no limit."""

    project: str
    max_runs: int | None
    max_bytes: int | None
    reports_per_second: float | None
