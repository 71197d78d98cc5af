"""The distribution of what a run's policy bounds, over its steps: stored sequences, one batch in memory at a time."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from trmon.api.distribution.schemas import DistributionOut
from trmon.api.http.components import Components, Service
from trmon.api.runs.step_selection import Chosen
from trmon.domain.analysis.distribution import CriterionKey, CriterionSamples, distribution
from trmon.domain.model.errors import InvalidInput
from trmon.domain.model.identity import BatchKey
from trmon.domain.model.messages import decode_reports
from trmon.domain.policies.policy_registry import PolicyRegistry
from trmon_client.core.columns.columns import Columns

router = APIRouter(prefix="/api/v1/runs/{project}/{run}", tags=["policies"])


@router.get("/distribution")
def get_distribution(
    service: Service,
    chosen: Chosen,
    statistic: Annotated[str | None, Query(max_length=64, description="Which criterion, by what it reads.")] = None,
    pair: Annotated[str | None, Query(max_length=64)] = None,
    where: Annotated[str | None, Query(max_length=64)] = None,
) -> DistributionOut:
    """Return where sequences stood against a bound of the policy, step by step, and the bound then in force."""
    policies, cuts = service.store.policies, CriterionSamples()
    book = PolicyRegistry.of(policies.current(chosen.run_id), versions=policies.history(chosen.run_id))
    n_found = sum(_added(service, cuts, batch, book=book) for batch in chosen.batches)
    read = cuts.most_rejecting if statistic is None else _asked(cuts, statistic, pair=pair, where=where)
    found = None if read is None else distribution(cuts.by_criterion[read])
    return DistributionOut.of(cuts, chosen=read, found=found, missing=len(chosen.batches) - n_found)


def _added(service: Components, cuts: CriterionSamples, key: BatchKey, *, book: PolicyRegistry) -> bool:
    """Take a batch in, as the policy that its first report names reads it; false without one that can be read."""
    reports, _ = decode_reports(service.store.run_log.batch_reports(key))
    policy = book.find(reports[0].report.policy) if reports else None
    if policy is not None:
        cuts.add(Columns.merge(*(report.columns() for report in reports)), step=key.step, policy=policy)
    return bool(reports)


def _asked(cuts: CriterionSamples, statistic: str, *, pair: str | None, where: str | None) -> CriterionKey:
    for read in cuts.by_criterion:
        if read[0] == statistic and pair in (None, read[1]) and where in (None, read[2]):
            return read
    known = ", ".join(sorted({read[0] for read in cuts.by_criterion})) or "none"
    raise InvalidInput(
        "statistic", f"{statistic!r:.64} is none that a criterion read in these steps; these were: {known}"
    )
