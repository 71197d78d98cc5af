"""Routes of a run's rejections over its steps: the distribution of its sequences against bounds, and the reasons."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

from fastapi import APIRouter, Query

from trmon.api.http.answers import AnswerRoute
from trmon.api.http.auth import Reader
from trmon.api.http.components import Components, Service
from trmon.api.http.parameters import SelectedSteps
from trmon.api.policies import registry_of
from trmon.domain.analysis.distribution import CriterionKey, CriterionSamples, distribution
from trmon.domain.batches.assembly import merge_columns
from trmon.domain.batches.batch import DecisionRow
from trmon.domain.errors import InvalidInput
from trmon.domain.identity import BatchKey
from trmon.domain.messages import decode_reports
from trmon.domain.policies import PolicyRegistry
from trmon_client.api.batches import CriterionInfo, DistributionInfo, ReasonsInfo

router = APIRouter(prefix="/api/v1/runs/{project}/{run}", tags=["policies"], route_class=AnswerRoute)


@router.get("/distribution")
def get_distribution(
    service: Service,
    selected: SelectedSteps,
    statistic: Annotated[
        str | None,
        Query(max_length=64, description="Statistic of the criterion; defaults to the one that rejected most."),
    ] = None,
    pair: Annotated[str | None, Query(max_length=64)] = None,
    where: Annotated[str | None, Query(max_length=64)] = None,
) -> DistributionInfo:
    """Return the distribution of a bounded statistic over each step's sequences, and the bound active then."""
    samples, registry = CriterionSamples(), registry_of(service, selected.run_id)
    n_found = sum(_add_batch(service, samples, batch, registry=registry) for batch in selected.batches)
    read = samples.most_rejecting if statistic is None else _find_criterion(samples, statistic, pair=pair, where=where)
    return _distribution_info(samples, chosen=read, missing=len(selected.batches) - n_found)


def _add_batch(service: Components, samples: CriterionSamples, key: BatchKey, *, registry: PolicyRegistry) -> bool:
    """Add a batch under the policy of its first report; return whether any report could be read."""
    reports, _ = decode_reports(service.store.reports.of_batch(key))
    policy = registry.find(reports[0].report.policy) if reports else None
    if policy is not None:
        samples.add(merge_columns([report.columns() for report in reports]), step=key.step, policy=policy)
    return bool(reports)


def _find_criterion(samples: CriterionSamples, statistic: str, *, pair: str | None, where: str | None) -> CriterionKey:
    for read in samples.by_criterion:
        if read[0] == statistic and pair in (None, read[1]) and where in (None, read[2]):
            return read
    known = ", ".join(sorted({read[0] for read in samples.by_criterion})) or "none"
    raise InvalidInput(
        "statistic", f"{statistic!r:.64} is not the statistic of a criterion in these steps; these are: {known}"
    )


def _distribution_info(samples: CriterionSamples, *, chosen: CriterionKey | None, missing: int) -> DistributionInfo:
    criteria = {
        read: CriterionInfo(statistic=read[0], pair=read[1], where=read[2], n_rejected=samples.n_rejected(read))
        for read in samples.by_criterion
    }
    by_step: dict[str, Any] = dict.fromkeys(("steps", "edges", "counts", "n_unknown", "lower", "upper"), ())
    if chosen is not None:
        found = distribution(samples.by_criterion[chosen])
        by_step = asdict(found) | {"edges": found.edges.tolist(), "counts": found.counts.tolist()}
    return DistributionInfo.from_fields(
        criteria=list(criteria.values()),
        chosen=None if chosen is None else criteria[chosen],
        n_steps_without_reports=missing,
        **by_step,
    )


NOT_REASONS = ("accepted", "empty")
"""Counts of a decision that are not reasons for rejection."""


def _fraction(row: DecisionRow, reason: str) -> float:
    decided = sum(n for name, n in row.counts.items() if name != "empty")
    return row.counts.get(reason, 0) / decided if decided else 0.0


@router.get("/reasons")
def list_reasons(access: Reader, service: Service, selected: SelectedSteps) -> ReasonsInfo:
    """Return the fraction of each step's sequences that the active policy rejected, by reason."""
    found = service.store.batches.returned_decisions(selected.batches, access=access)
    rows = [found[key] for key in selected.batches if key in found]
    names = sorted({name for row in rows for name in row.counts if name not in NOT_REASONS})
    return ReasonsInfo.from_fields(
        steps=[row.key.step for row in rows],
        mask_rate=[row.mask_rate for row in rows],
        reasons={name: [_fraction(row, name) for row in rows] for name in names},
    )
