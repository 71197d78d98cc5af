"""Response schema of the probes."""

from __future__ import annotations

from pydantic import BaseModel


class HealthOut(BaseModel):
    """Success; failures are problem responses."""

    status: str = "ok"
