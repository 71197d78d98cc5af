"""A batch's sequences: its reports merged once more, and why each policy rejected which."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from trmon.api.batches.schemas import CriterionValues, SequenceDecisions, SequencesOut
from trmon.domain.analysis.distribution import in_bound_units
from trmon.domain.batches.batch import DecisionRow, PolicyRole
from trmon.domain.policies.policy_registry import PolicyRegistry
from trmon_client.core.columns.columns import Columns
from trmon_client.core.policies.acceptance import Decision, PolicyError, decide
from trmon_client.core.wire import unpack_bits


@dataclass(frozen=True, slots=True, kw_only=True)
class SequenceSelection:
    """Which sequences and columns to show; without names, all columns."""

    first: int
    limit: int
    names: frozenset[str] | None = None

    def of(self, values: Any) -> list[Any]:
        """Return the part of [B] values that is shown."""
        shown: list[Any] = list(values[self.first : self.first + self.limit])
        return shown


def select_sequences(
    columns: Columns, decisions: Sequence[DecisionRow], *, book: PolicyRegistry, window: SequenceSelection
) -> SequencesOut:
    """Return the sequences of a window with the decisions that stand."""
    names = [name for name in columns if window.names is None or name in window.names]
    return SequencesOut(
        first=window.first,
        n_sequences=columns.n_sequences,
        columns={name: window.of(columns[name].tolist()) for name in names},
        decisions=[_decided(row, columns, book=book, window=window) for row in decisions],
        criteria=[
            criterion
            for row in decisions
            if row.role is PolicyRole.ACTIVE
            for criterion in _criteria(row, columns, book=book, window=window)
        ],
    )


def _decided(
    row: DecisionRow, columns: Columns, *, book: PolicyRegistry, window: SequenceSelection
) -> SequenceDecisions:
    accepted = unpack_bits(row.accepted, columns.n_sequences).tolist()
    return SequenceDecisions(
        policy=row.policy_name,
        hash=row.policy_hash,
        role=row.role,
        accepted=window.of(accepted),
        reasons=window.of(_reasons(row, columns, book=book)),
    )


def _criteria(
    row: DecisionRow, columns: Columns, *, book: PolicyRegistry, window: SequenceSelection
) -> list[CriterionValues]:
    decision = _again(row, columns, book=book)
    judged = zip(decision.policy.criteria, decision.compared, strict=True) if decision else ()
    return [
        CriterionValues.of(criterion, window.of(in_bound_units(criterion, compared).tolist()))
        for criterion, compared in judged
        if compared is not None
    ]


def _reasons(row: DecisionRow, columns: Columns, *, book: PolicyRegistry) -> list[str | None]:
    decision = _again(row, columns, book=book)
    return decision.reasons if decision else [None] * columns.n_sequences


def _again(row: DecisionRow, columns: Columns, *, book: PolicyRegistry) -> Decision | None:
    """Reasons and values are not kept: a decision is a pure function, so they are found again."""
    policy = book.find(row.policy_hash)
    try:
        return decide(columns, policy) if policy else None
    except PolicyError:
        return None
