"""Response schemas of distributions."""

from __future__ import annotations

from typing import Self

from pydantic import BaseModel, Field

from trmon.api.http.json_numbers import Number
from trmon.domain.analysis.distribution import CriterionKey, CriterionSamples, Distribution


class CriterionOut(BaseModel):
    """A criterion that applied in these steps, and how many sequences it rejected first."""

    statistic: str
    pair: str
    where: str | None
    n_rejected: int

    @classmethod
    def of(cls, read: CriterionKey, *, n_rejected: int) -> Self:
        """Return the response for a criterion."""
        statistic, pair, where = read
        return cls(statistic=statistic, pair=pair, where=where, n_rejected=n_rejected)


class DistributionOut(BaseModel):
    """Histograms of a criterion's statistic over the sequences of each step, and the bounds active then."""

    criteria: list[CriterionOut] = Field(description="The criteria that can be requested.")
    chosen: CriterionOut | None = Field(
        description="The requested criterion, or the one that rejected most; null if none applied."
    )
    steps: list[int]
    edges: list[Number] = Field(description="Ascending; the outer bins include values beyond them.")
    counts: list[list[int]] = Field(description="For each step, one count per bin.")
    n_unknown: list[int] = Field(description="The number of sequences of each step whose statistic is NaN.")
    lower: list[Number | None]
    upper: list[Number | None]
    n_steps_without_reports: int = Field(
        description="The number of selected steps whose sequences are no longer stored."
    )

    @classmethod
    def of(
        cls, samples: CriterionSamples, *, chosen: CriterionKey | None, found: Distribution | None, missing: int
    ) -> Self:
        """Return the response for a distribution; None if no criterion applied."""
        criteria = {read: CriterionOut.of(read, n_rejected=samples.n_rejected(read)) for read in samples.by_criterion}
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
