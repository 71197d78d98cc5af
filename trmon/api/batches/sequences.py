"""Selects sequences of a batch and repeats each policy's decision for its reasons and values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from trmon.api.batches.schemas import CriterionValues, SequenceDecisions, SequencesOut
from trmon.api.batches.turns import count_turns, select_turns
from trmon.domain.analysis.distribution import in_bound_units
from trmon.domain.batches.batch import DecisionRow, PolicyRole
from trmon.domain.policies.policy_registry import PolicyRegistry
from trmon_client.core.columns.columns import Columns
from trmon_client.core.policies.decide import decide
from trmon_client.core.policies.decision import Decision
from trmon_client.core.policies.sequence_statistics import PolicyError
from trmon_client.core.wire import unpack_bits


@dataclass(frozen=True, slots=True, kw_only=True)
class SequenceSelection:
    """The sequences and columns to return; without names, all columns; `with_turns`, their turns too."""

    first: int
    limit: int
    names: frozenset[str] | None = None
    with_turns: bool = False

    def of(self, values: Any) -> list[Any]:
        """Return the selected part of [B] values."""
        selected: list[Any] = list(values[self.first : self.first + self.limit])
        return selected


def select_sequences(
    columns: Columns, decisions: Sequence[DecisionRow], *, registry: PolicyRegistry, selection: SequenceSelection
) -> SequencesOut:
    """Return the selected sequences with their stored decisions."""
    repeated = [(row, _repeat_decision(row, columns, registry=registry)) for row in decisions]
    active = next((decision for row, decision in repeated if row.role is PolicyRole.ACTIVE), None)
    rows = range(columns.n_sequences)[selection.first : selection.first + selection.limit]
    names = [name for name in columns if selection.names is None or name in selection.names]
    return SequencesOut(
        first=selection.first,
        n_sequences=columns.n_sequences,
        columns={name: selection.of(columns[name].tolist()) for name in names},
        decisions=[_sequence_decisions(row, columns, decision, selection=selection) for row, decision in repeated],
        criteria=_criteria(active, selection=selection),
        turn_counts=count_turns(columns, active, rows=rows),
        turns=select_turns(columns, active, rows=rows) if selection.with_turns else None,
    )


def _sequence_decisions(
    row: DecisionRow, columns: Columns, decision: Decision | None, *, selection: SequenceSelection
) -> SequenceDecisions:
    accepted = unpack_bits(row.accepted, columns.n_sequences).tolist()
    return SequenceDecisions(
        policy=row.policy_name,
        hash=row.policy_hash,
        role=row.role,
        accepted=selection.of(accepted),
        reasons=selection.of(decision.reasons if decision else [None] * columns.n_sequences),
    )


def _criteria(decision: Decision | None, *, selection: SequenceSelection) -> list[CriterionValues]:
    compared_criteria = zip(decision.policy.criteria, decision.compared, strict=True) if decision else ()
    return [
        CriterionValues.from_fields(criterion, values=selection.of(in_bound_units(criterion, compared).tolist()))
        for criterion, compared in compared_criteria
        if compared is not None
    ]


def _repeat_decision(row: DecisionRow, columns: Columns, *, registry: PolicyRegistry) -> Decision | None:
    """Reasons and values are not stored, because a decision is a pure function that can be repeated."""
    policy = registry.find(row.policy_hash)
    try:
        return decide(columns, policy) if policy else None
    except PolicyError:
        return None
