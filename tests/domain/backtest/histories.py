"""Histories for tests of backtests."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from tests.domain.memory_log import MemoryLog
from tests.store.builders import batch
from trmon.domain.backtest.evaluation import PolicyMaskRate, StoredHistory
from trmon.domain.batches.batch import BatchRow
from trmon.domain.identity import BatchKey

RISE = [0.5] * 20 + [0.5 + 0.01 * step for step in range(40)]
"""A reward that gains 0.39 in 60 steps."""


def history(steps: Iterable[Mapping[str, float]], *, step_seconds: float | None = 60.0) -> StoredHistory:
    """Return a history of one row a step with these signals."""
    values = list(steps)

    def rows() -> Iterator[BatchRow]:
        for step, signals in enumerate(values):
            seconds = {} if step_seconds is None else {"step_seconds": step_seconds}
            key = BatchKey(1, step, None)
            yield batch(key, run_id=1, ordinal=step + 1, closed_at=1000.0 + 60.0 * step, signals={**seconds, **signals})

    return StoredHistory(run=MemoryLog().stored_run, rows=rows, apply_policy=_no_sequences)


def rewards(*values: float) -> list[dict[str, float]]:
    return [{"reward_mean": value} for value in values]


def _no_sequences(policy: Any) -> PolicyMaskRate:
    return PolicyMaskRate(policy=policy.name, skipped="no sequences are stored")
