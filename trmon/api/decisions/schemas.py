"""Response schema of rejection reasons by step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

from pydantic import BaseModel, Field

from trmon.api.http.json_numbers import Number
from trmon.domain.batches.batch import DecisionRow

NOT_REASONS = ("accepted", "empty")
"""Counts of a decision that are not reasons for rejection."""


class ReasonsOut(BaseModel):
    """The fraction of rejected sequences by step."""

    steps: list[int]
    mask_rate: list[Number]
    reasons: dict[str, list[float]] = Field(
        description="For each reason, its fraction at each step; they sum to the mask rate."
    )

    @classmethod
    def of(cls, rows: Sequence[DecisionRow]) -> Self:
        """Return the response for one decision per step."""
        names = sorted({name for row in rows for name in row.counts if name not in NOT_REASONS})
        return cls(
            steps=[row.key.step for row in rows],
            mask_rate=[row.mask_rate for row in rows],
            reasons={name: [_fraction(row, name) for row in rows] for name in names},
        )


def _fraction(row: DecisionRow, reason: str) -> float:
    decided = sum(n for name, n in row.counts.items() if name != "empty")
    return row.counts.get(reason, 0) / decided if decided else 0.0
