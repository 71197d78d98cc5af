"""Signals in answers; the series is written by msgspec, its model is what OpenAPI shows."""

from __future__ import annotations

from typing import Self

from pydantic import BaseModel, Field

from trmon.api.http.json_numbers import Number
from trmon_client.core.signals.batch_signals import SignalSpec


class SignalOut(BaseModel):
    """One signal of the catalogue."""

    name: str
    pair: str | None
    unit: str
    description: str
    formula: str
    healthy: str
    prometheus: bool = Field(description="Whether /metrics has it by default.")

    @classmethod
    def of(cls, spec: SignalSpec) -> Self:
        """Return a signal as answered."""
        return cls(
            name=spec.name,
            pair=spec.pair,
            unit=spec.unit,
            description=spec.description,
            formula=spec.formula,
            healthy=spec.healthy,
            prometheus=spec.core,
        )


class BandOut(BaseModel):
    """One signal over the points, those statistics that were asked for; where `exact`, all are the same."""

    min: list[Number] | None = None
    max: list[Number] | None = None
    mean: list[Number] | None = None
    last: list[Number] | None = None


class SeriesOut(BaseModel):
    """Signals over shared points, oldest first; a point's place is that of its last batch."""

    exact: bool = Field(description="Every point is one batch.")
    attempt_id: list[int]
    step: list[int]
    update: list[int | None]
    closed_at: list[float]
    count: list[int] = Field(description="How many batches each point stands for.")
    signals: dict[str, BandOut]
