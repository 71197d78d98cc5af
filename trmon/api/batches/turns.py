"""Selects the turns of sequences, with the decision of the active policy."""

from __future__ import annotations

from typing import Any

import numpy as np

from trmon.api.batches.schemas import TurnCounts, TurnCriterionValues, TurnsOut
from trmon_client.core.columns.columns import Columns
from trmon_client.core.columns.turn_columns import TurnColumns
from trmon_client.core.policies.decision import Decision
from trmon_client.core.policies.turn_decision import FIRST_TURN_CRITERION, TurnDecision


def count_turns(columns: Columns, decision: Decision | None, *, rows: range) -> TurnCounts | None:
    """Return how many turns the sequences of `rows` have, and how many are rejected; None without turns."""
    turns = columns.turns
    if turns is None:
        return None
    decided = None if decision is None else decision.turns
    rejected = None
    if decided is not None:
        is_rejected = decided.codes >= FIRST_TURN_CRITERION
        rejected = np.bincount(turns.sequences[is_rejected], minlength=columns.n_sequences)[
            rows.start : rows.stop
        ].tolist()
    return TurnCounts(n_turns=turns.n_turns[rows.start : rows.stop].tolist(), n_rejected=rejected)


def select_turns(columns: Columns, decision: Decision | None, *, rows: range) -> list[TurnsOut] | None:
    """Return the turns of the sequences of `rows`; None without turns."""
    turns = columns.turns
    if turns is None:
        return None
    decided = None if decision is None else decision.turns
    return [_turns_of(turns, decided, part=slice(turns.ends[i] - turns.n_turns[i], turns.ends[i])) for i in rows]


def _turns_of(turns: TurnColumns, decided: TurnDecision | None, *, part: slice) -> TurnsOut:
    def selected(values: Any) -> list[Any]:
        return list(values[part].tolist())

    columns = {name: selected(array) for name, array in turns.by_name.items()}
    if decided is None:
        return TurnsOut(columns=columns, accepted=None, reasons=None, criteria=[])
    return TurnsOut(
        columns=columns,
        accepted=selected(decided.accepted),
        reasons=decided.reasons[part],
        criteria=_criteria(decided, part=part),
    )


def _criteria(decided: TurnDecision, *, part: slice) -> list[TurnCriterionValues]:
    # Without a pair no criterion has values.
    compared = zip(decided.criteria, decided.compared, strict=False)
    return [TurnCriterionValues.from_fields(criterion, values=values[part].tolist()) for criterion, values in compared]
