"""Steps of a run, made of numbers alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from trmon.domain.batches.batch import BatchRow
from trmon.domain.identity import BatchKey
from trmon_research.sweep.spooled_signals import StepRows


def row(step: int, signals: Mapping[str, float]) -> BatchRow:
    """Return the row of a rollout."""
    return BatchRow(
        run_id=1,
        key=BatchKey(1, step, None),
        ordinal=step + 1,
        closed_at=0.0,
        n_sequences=16,
        n_tokens=100,
        n_ranks=1,
        missing_ranks=(),
        complete=True,
        revised=False,
        mode="observe",
        primary_pair="mismatch",
        kl_is="sampled",
        policy_hash=None,
        mismatches=0,
        last_report_id=1,
        signals=dict(signals),
        scalars={},
    )


def steps_of(columns: Mapping[str, Sequence[float]]) -> list[StepRows]:
    """Return steps from 0 on. Args: columns: the values of each signal."""
    n = len(next(iter(columns.values())))
    rows = [row(step, {name: values[step] for name, values in columns.items()}) for step in range(n)]
    return [StepRows(rollout=each, last_update=each, alerts=()) for each in rows]
