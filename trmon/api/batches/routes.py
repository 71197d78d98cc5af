"""Routes of a run's closed batches, their decisions and sequences."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Path, Query

from trmon.api.batches.schemas import BatchOut, DecisionOut, SequencesOut
from trmon.api.batches.sequences import SequenceSelection, select_sequences
from trmon.api.http.components import Components, Service
from trmon.api.http.dependencies import Reader
from trmon.api.http.name_lists import Names, check_known, split_names
from trmon.api.http.page_parameters import After, Limit
from trmon.api.http.pages import PageOut
from trmon.api.runs.routes import Named
from trmon.api.runs.step_selection import OfAttempt
from trmon.domain.batches.batch import BatchRow
from trmon.domain.batches.merged_columns import merge_columns
from trmon.domain.model.access import Access
from trmon.domain.model.errors import NotFound
from trmon.domain.model.identity import RunKey
from trmon.domain.model.messages import decode_reports
from trmon.domain.policies.policy_registry import PolicyRegistry
from trmon_client.core.columns.columns import Columns
from trmon_client.core.columns.schema import COLUMNS

router = APIRouter(prefix="/api/v1/runs/{project}/{run}/batches", tags=["batches"])

MAX_UPDATES = 1000

Step = Annotated[int, Path(ge=0, lt=1 << 62)]
Update = Annotated[int | None, Query(ge=0, description="The update of the step; by default the row that gauges read.")]
Attempt = Annotated[
    int | None,
    Query(ge=0, lt=1 << 62, description="The attempt's id; by default the newest attempt with the step."),
]


@router.get("")
def list_batches(
    key: Named,
    access: Reader,
    service: Service,
    attempt_id: OfAttempt = None,
    after: After = None,
    limit: Limit = 100,
    order: Annotated[
        Literal["newest", "oldest"], Query(description="Which batches come first, in the order in which they closed.")
    ] = "newest",
) -> PageOut[BatchOut]:
    """List a run's batches, newest first unless `order` is oldest."""
    run = service.store.runs.get(key, access=access)
    page = service.store.batches.list(
        run.id, access=access, attempt_id=attempt_id, after=after, limit=limit, oldest_first=order == "oldest"
    )
    return PageOut(items=[BatchOut.of(batch) for batch in page.items], next=page.next)


@router.get("/{step}")
def get_batch(
    key: Named, step: Step, access: Reader, service: Service, update: Update = None, attempt_id: Attempt = None
) -> BatchOut:
    """Return a batch of a step."""
    return BatchOut.of(_find(service, access, key, step=step, update=update, attempt_id=attempt_id))


@router.get("/{step}/decisions")
def list_decisions(
    key: Named, step: Step, access: Reader, service: Service, update: Update = None, attempt_id: Attempt = None
) -> list[DecisionOut]:
    """List the decisions of each policy over a batch, the active policy first."""
    batch = _find(service, access, key, step=step, update=update, attempt_id=attempt_id)
    return [DecisionOut.of(row) for row in service.store.batches.decisions(batch.key, access=access)]


@router.get("/{step}/sequences")
def list_sequences(
    key: Named,
    step: Step,
    access: Reader,
    service: Service,
    update: Update = None,
    attempt_id: Attempt = None,
    names: Names = None,
    first: Annotated[int, Query(ge=0, description="The index of the first sequence to return.")] = 0,
    limit: Limit = 256,
    turns: Annotated[
        bool, Query(description="Whether to return the turns of the sequences, if there are any.")
    ] = False,
) -> SequencesOut:
    """Return sequences of a batch: their columns, and the decision of each policy with its reason."""
    batch = _find(service, access, key, step=step, update=update, attempt_id=attempt_id)
    requested = split_names(names)
    check_known(requested, COLUMNS, kind="column", listed_by="a request without names")
    return select_sequences(
        _columns(service, batch),
        service.store.batches.decisions(batch.key, access=access),
        registry=_registry(service, batch.run_id),
        selection=SequenceSelection(
            first=first, limit=limit, names=frozenset(requested) if requested else None, with_turns=turns
        ),
    )


def _find(
    service: Components, access: Access, key: RunKey, *, step: int, update: int | None, attempt_id: int | None
) -> BatchRow:
    """Return the requested batch; without an update, the whole rollout batch or else the step's last update."""
    run = service.store.runs.get(key, access=access)
    rows = service.store.batches.list(run.id, access=access, attempt_id=attempt_id, step=step, limit=MAX_UPDATES).items
    rows = tuple(row for row in rows if row.key.attempt_id == rows[0].key.attempt_id)
    found = [row for row in rows if row.key.update == update]
    if not found and update is None:
        found = sorted(rows, key=lambda row: row.key.order)[-1:]
    if not found:
        raise NotFound("batch", f"step {step}" + ("" if update is None else f", update {update}"))
    return found[0]


def _columns(service: Components, batch: BatchRow) -> Columns:
    reports, damaged = decode_reports(service.store.reports.of_batch(batch.key))
    if not reports and not damaged:
        raise NotFound("stored sequences", f"step {batch.key.step}; reports are kept for a limited time")
    if (damaged and sum(report.n_sequences for report in reports) != batch.n_sequences) or not reports:
        raise NotFound("stored sequences", f"step {batch.key.step}; its reports are damaged")
    return merge_columns([report.columns() for report in reports])


def _registry(service: Components, run_id: int) -> PolicyRegistry:
    policies = service.store.policies
    return PolicyRegistry.of(policies.current(run_id), versions=policies.history(run_id))
