"""Distributions in answers."""

from __future__ import annotations

from typing import Self

from pydantic import BaseModel, Field

from trmon.api.http.json_numbers import Number
from trmon.domain.analysis.distribution import CriterionKey, CriterionSamples, Distribution


class CriterionOut(BaseModel):
    """One criterion that applied in these steps, and how many sequences it was the first to reject."""

    statistic: str
    pair: str
    where: str | None
    n_rejected: int

    @classmethod
    def of(cls, read: CriterionKey, *, n_rejected: int) -> Self:
        """Return a criterion as answered."""
        statistic, pair, where = read
        return cls(statistic=statistic, pair=pair, where=where, n_rejected=n_rejected)


class DistributionOut(BaseModel):
    """How many sequences of each step lay between two edges of a criterion's statistic, and the bounds in force."""

    criteria: list[CriterionOut] = Field(description="Those that can be asked for.")
    chosen: CriterionOut | None = Field(description="The one asked for, else the one that rejected most; null: none.")
    steps: list[int]
    edges: list[Number] = Field(description="Ascending; the outer bins take what lies beyond.")
    counts: list[list[int]] = Field(description="For each step, one count a bin.")
    n_unknown: list[int] = Field(description="Sequences of each step whose statistic is NaN.")
    lower: list[Number | None]
    upper: list[Number | None]
    n_steps_without_reports: int = Field(description="Steps looked for whose sequences are no longer stored.")

    @classmethod
    def of(
        cls, cuts: CriterionSamples, *, chosen: CriterionKey | None, found: Distribution | None, missing: int
    ) -> Self:
        """Return a distribution as answered; None where no criterion applied."""
        criteria = {read: CriterionOut.of(read, n_rejected=cuts.n_rejected(read)) for read in cuts.by_criterion}
        return cls(
            criteria=list(criteria.values()),
            chosen=None if chosen is None else criteria[chosen],
            steps=list(found.steps) if found else [],
            edges=found.edges.tolist() if found else [],
            counts=found.counts.tolist() if found else [],
            n_unknown=list(found.n_unknown) if found else [],
            lower=list(found.lower) if found else [],
            upper=list(found.upper) if found else [],
            n_steps_without_reports=missing,
        )
