"""Response schemas of the risk of a collapse."""

from __future__ import annotations

from typing import Any, Self

from pydantic import Field

from trmon.api.http.response_model import ResponseModel
from trmon.domain.collapse_risk.risk_model import HORIZON, shipped_model
from trmon.domain.collapse_risk.risk_reading import RiskLevel, RiskReading


class RiskDriverOut(ResponseModel):
    """What an input adds to the log-odds of a collapse."""

    input: str
    log_odds: float = Field(description="Below 0 the input speaks against a collapse.")
    words: str = Field(description="The input in words.")


class RiskModelOut(ResponseModel):
    """The model that made the estimate."""

    name: str
    fitted_on: dict[str, Any] = Field(description="On what and how it was fitted.")


class FleetRiskOut(ResponseModel):
    """The risk of a collapse in brief."""

    probability: float
    level: RiskLevel = Field(
        description="How the probability compares with the model's thresholds; past once the reward has collapsed or "
        "the run has finished."
    )
    driven_by: list[str] = Field(description="The inputs that raise it most, in words; at most two.")

    @classmethod
    def of(cls, reading: RiskReading | None, *, is_past: bool) -> Self | None:
        """Return the response for a reading; None without one."""
        if reading is None:
            return None
        return cls.from_fields(reading, level=reading.level(shipped_model().file, is_past=is_past))


class CollapseRiskOut(FleetRiskOut):
    """The probability that a collapse begins within a number of steps, and why: a prediction, not a finding."""

    horizon_steps: int
    drivers: list[RiskDriverOut] = Field(description="What each known input adds, the largest first.")
    missing: list[str] = Field(description="Inputs that the model reads and the run does not send.")
    outside: list[str] = Field(description="Inputs beyond the values of the runs that the model was fitted to.")
    model: RiskModelOut
    warn_at: float = Field(description="The probability that a tenth of the runs without a collapse reached.")
    page_at: float = Field(description="The probability that a twentieth of the runs without a collapse reached.")

    @classmethod
    def of(cls, reading: RiskReading | None, *, is_past: bool) -> Self | None:
        """Return the response for a reading; None without one."""
        if reading is None:
            return None
        file = shipped_model().file
        return cls.from_fields(
            reading,
            level=reading.level(file, is_past=is_past),
            horizon_steps=HORIZON,
            model=RiskModelOut.from_fields(file),
            warn_at=file.warn_at,
            page_at=file.page_at,
        )
