"""A batch's sequences: its reports merged once more, and why each policy rejected which."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from trmon.app.batches.schemas import SequenceDecisions, SequencesOut
from trmon.domain.batch import DecisionRow
from trmon.domain.policybook import PolicyBook
from trmon_client.core.acceptance import PolicyError, decide
from trmon_client.core.columns import Columns
from trmon_client.core.wire import unpack_bits


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """Which sequences and columns to show; without names, all columns."""

    first: int
    limit: int
    names: frozenset[str] | None = None

    def of(self, values: Any) -> list[Any]:
        """Return the part of [B] values that is shown."""
        shown: list[Any] = list(values[self.first : self.first + self.limit])
        return shown


def shown(columns: Columns, decisions: Sequence[DecisionRow], *, book: PolicyBook, window: Window) -> SequencesOut:
    """Return the sequences of a window with the decisions that stand."""
    names = [name for name in columns if window.names is None or name in window.names]
    return SequencesOut(
        first=window.first,
        n_sequences=columns.n_sequences,
        columns={name: window.of(columns[name].tolist()) for name in names},
        decisions=[_decided(row, columns, book=book, window=window) for row in decisions],
    )


def _decided(row: DecisionRow, columns: Columns, *, book: PolicyBook, window: Window) -> SequenceDecisions:
    accepted = unpack_bits(row.accepted, columns.n_sequences).tolist()
    return SequenceDecisions(
        policy=row.policy_name,
        hash=row.policy_hash,
        role=row.role,
        accepted=window.of(accepted),
        reasons=window.of(_reasons(row, columns, book=book)),
    )


def _reasons(row: DecisionRow, columns: Columns, *, book: PolicyBook) -> list[str | None]:
    """Reasons are not kept: a decision is a pure function, so they are found again."""
    policy = book.find(row.policy_hash)
    try:
        return decide(columns, policy).reasons if policy else [None] * columns.n_sequences
    except PolicyError:
        return [None] * columns.n_sequences
