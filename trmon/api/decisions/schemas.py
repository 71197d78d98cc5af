"""Decisions over steps in answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

from pydantic import BaseModel, Field

from trmon.api.http.json_numbers import Number
from trmon.domain.batches.batch import DecisionRow

UNDECIDED = ("accepted", "empty")
"""What is counted beside the reasons of rejections."""


class ReasonsOut(BaseModel):
    """Shares of rejected sequences by step."""

    steps: list[int]
    mask_rate: list[Number]
    reasons: dict[str, list[float]] = Field(description="By reason, one share a step; they add up to the mask rate.")

    @classmethod
    def of(cls, rows: Sequence[DecisionRow]) -> Self:
        """Return decisions, one a step, as answered."""
        names = sorted({name for row in rows for name in row.counts if name not in UNDECIDED})
        return cls(
            steps=[row.key.step for row in rows],
            mask_rate=[row.mask_rate for row in rows],
            reasons={name: [_share(row, name) for row in rows] for name in names},
        )


def _share(row: DecisionRow, reason: str) -> float:
    decided = sum(n for name, n in row.counts.items() if name != "empty")
    return row.counts.get(reason, 0) / decided if decided else 0.0
