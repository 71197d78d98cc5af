"""The closed batches of a run, down to their decisions, sequences and turns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

import numpy as np
from fastapi import APIRouter, Path, Query

from trmon.api.http.answers import AnswerRoute
from trmon.api.http.auth import Reader
from trmon.api.http.components import Components, Service
from trmon.api.http.parameters import After, Limit, Named, Names, OfAttempt, check_known, split_names
from trmon.api.policies import registry_of
from trmon.domain.access import Access
from trmon.domain.analysis.distribution import in_bound_units
from trmon.domain.batches.assembly import merge_columns
from trmon.domain.batches.batch import BatchRow, DecisionRow, PolicyRole
from trmon.domain.errors import NotFound
from trmon.domain.identity import RunKey
from trmon.domain.messages import decode_reports
from trmon.domain.policies import PolicyRegistry
from trmon_client.api.answers import ItemPage
from trmon_client.api.batches import (
    BatchInfo,
    CriterionValuesInfo,
    DecisionInfo,
    SequenceDecisionsInfo,
    SequencesInfo,
    TurnCountsInfo,
    TurnCriterionValuesInfo,
    TurnsInfo,
)
from trmon_client.core.column_schema import COLUMNS
from trmon_client.core.columns import Columns, TurnColumns
from trmon_client.core.policies.decision import FIRST_TURN_CRITERION, Decision, TurnDecision, decide
from trmon_client.core.policies.sequence_statistics import PolicyError
from trmon_client.core.wire import unpack_bits


def select_sequences(
    columns: Columns,
    decisions: Sequence[DecisionRow],
    *,
    registry: PolicyRegistry,
    rows: range,
    names: Sequence[str],
    with_turns: bool,
) -> SequencesInfo:
    """Return the sequences of `rows` with their stored decisions. Args: names: of columns; without any, all of them."""
    repeated = [(row, _repeat_decision(row, columns, registry=registry)) for row in decisions]
    active = next((decision for row, decision in repeated if row.role is PolicyRole.ACTIVE), None)
    turns, decided = columns.turns, None if active is None else active.turns
    part = slice(rows.start, rows.stop)
    return SequencesInfo.from_fields(
        first=rows.start,
        n_sequences=columns.n_sequences,
        columns={name: columns[name][part].tolist() for name in columns if not names or name in names},
        decisions=[_sequence_decisions(row, columns, decision, part=part) for row, decision in repeated],
        criteria=_criteria(active, part=part),
        turn_counts=None if turns is None else _turn_counts(turns, decided, part=part),
        turns=[_turns_of(turns, decided, row=row) for row in rows] if with_turns and turns is not None else None,
    )


def _sequence_decisions(
    row: DecisionRow, columns: Columns, decision: Decision | None, *, part: slice
) -> SequenceDecisionsInfo:
    reasons = decision.reasons if decision else [None] * columns.n_sequences
    return SequenceDecisionsInfo.from_fields(
        policy=row.policy_name,
        hash=row.policy_hash,
        role=row.role,
        accepted=unpack_bits(row.accepted, columns.n_sequences)[part].tolist(),
        reasons=reasons[part],
    )


def _criteria(decision: Decision | None, *, part: slice) -> list[CriterionValuesInfo]:
    compared_criteria = zip(decision.policy.criteria, decision.compared, strict=True) if decision else ()
    return [
        CriterionValuesInfo.from_fields(criterion, values=in_bound_units(criterion, compared)[part].tolist())
        for criterion, compared in compared_criteria
        if compared is not None
    ]


def _turn_counts(turns: TurnColumns, decided: TurnDecision | None, *, part: slice) -> TurnCountsInfo:
    """Return how many turns the sequences have, and how many of them are rejected."""
    n_rejected = None
    if decided is not None:
        rejected = turns.sequences[decided.codes >= FIRST_TURN_CRITERION]
        n_rejected = np.bincount(rejected, minlength=len(turns.n_turns))[part].tolist()
    return TurnCountsInfo.from_fields(n_turns=turns.n_turns[part].tolist(), n_rejected=n_rejected)


def _turns_of(turns: TurnColumns, decided: TurnDecision | None, *, row: int) -> TurnsInfo:
    """Return the turns of one sequence."""
    part = slice(turns.ends[row] - turns.n_turns[row], turns.ends[row])
    columns = {name: array[part].tolist() for name, array in turns.by_name.items()}
    if decided is None:
        return TurnsInfo.from_fields(columns=columns, accepted=None, reasons=None, criteria=[])
    # Without a pair no criterion has values.
    compared = zip(decided.criteria, decided.compared, strict=False)
    return TurnsInfo.from_fields(
        columns=columns,
        accepted=decided.accepted[part].tolist(),
        reasons=decided.reasons[part],
        criteria=[
            TurnCriterionValuesInfo.from_fields(criterion, values=values[part].tolist())
            for criterion, values in compared
        ],
    )


def _repeat_decision(row: DecisionRow, columns: Columns, *, registry: PolicyRegistry) -> Decision | None:
    """Reasons and values are not stored, because a decision is a pure function that can be repeated."""
    policy = registry.find(row.policy_hash)
    try:
        return decide(columns, policy) if policy else None
    except PolicyError:
        return None


router = APIRouter(prefix="/api/v1/runs/{project}/{run}/batches", tags=["batches"], route_class=AnswerRoute)

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
) -> ItemPage[BatchInfo]:
    """List a run's batches, newest first unless `order` is oldest."""
    run = service.store.runs.get(key, access=access)
    page = service.store.batches.list(
        run.id, access=access, attempt_id=attempt_id, after=after, limit=limit, oldest_first=order == "oldest"
    )
    return ItemPage(items=[_batch_info(batch) for batch in page.items], next=page.next)


@router.get("/{step}")
def get_batch(
    key: Named, step: Step, access: Reader, service: Service, update: Update = None, attempt_id: Attempt = None
) -> BatchInfo:
    """Return a batch of a step."""
    return _batch_info(_find(service, access, key, step=step, update=update, attempt_id=attempt_id))


@router.get("/{step}/decisions")
def list_decisions(
    key: Named, step: Step, access: Reader, service: Service, update: Update = None, attempt_id: Attempt = None
) -> list[DecisionInfo]:
    """List the decisions of each policy over a batch, the active policy first."""
    batch = _find(service, access, key, step=step, update=update, attempt_id=attempt_id)
    return [
        DecisionInfo.from_fields(row, policy=row.policy_name, hash=row.policy_hash)
        for row in service.store.batches.decisions(batch.key, access=access)
    ]


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
) -> SequencesInfo:
    """Return sequences of a batch: their columns, and the decision of each policy with its reason."""
    batch = _find(service, access, key, step=step, update=update, attempt_id=attempt_id)
    requested = split_names(names)
    check_known(requested, COLUMNS, kind="column", listed_by="a request without names")
    columns = _columns(service, batch)
    return select_sequences(
        columns,
        service.store.batches.decisions(batch.key, access=access),
        registry=registry_of(service, batch.run_id),
        rows=range(first, max(first, min(first + limit, columns.n_sequences))),
        names=requested,
        with_turns=turns,
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


def _batch_info(row: BatchRow) -> BatchInfo:
    key = row.key
    return BatchInfo.from_fields(
        row, attempt_id=key.attempt_id, step=key.step, update=key.update, complete=row.known_complete
    )
