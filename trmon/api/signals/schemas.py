"""Response schemas of signals; msgspec encodes the series, and its schema serves OpenAPI and readers."""

from __future__ import annotations

from typing import Self

from pydantic import BaseModel, Field

from trmon.api.http.json_numbers import Number
from trmon.api.http.response_model import ResponseModel
from trmon_client.core.signals.batch_signals import SignalSpec


class SignalOut(ResponseModel):
    """A signal of the catalogue."""

    name: str
    pair: str | None
    unit: str
    description: str
    formula: str
    healthy: str
    prometheus: bool = Field(description="Whether /metrics exposes it by default.")

    @classmethod
    def of(cls, spec: SignalSpec) -> Self:
        """Return the response for a signal."""
        return cls.from_fields(spec, prometheus=spec.core)


class BandOut(BaseModel):
    """The requested statistics of a signal at each point; all are equal if the series is `exact`."""

    min: list[Number] | None = None
    max: list[Number] | None = None
    mean: list[Number] | None = None
    last: list[Number] | None = None


class SeriesOut(BaseModel):
    """Signals over shared points, oldest first; a point has the step of its last batch."""

    exact: bool = Field(description="Whether every point is one batch.")
    attempt_id: list[int]
    step: list[int]
    update: list[int | None]
    closed_at: list[float]
    count: list[int] = Field(description="The number of batches of each point.")
    signals: dict[str, BandOut]
