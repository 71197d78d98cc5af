"""The advisor reads a run's first rows once, whatever their signals are."""

from __future__ import annotations

from tests.domain.memory_log import MemoryLog
from tests.store.builders import batch, batch_key
from trmon.domain.batches.batch import BatchRow
from trmon.domain.budget.trainer_advice import TARGET_STEPS
from trmon.worker.run_processor import Advisor


class CountingLog(MemoryLog):
    """A log that counts how often rows are read."""

    n_read = 0

    def batches_after(self, run_id: int, ordinal: int, *, limit: int) -> list[BatchRow]:
        """See RunLog."""
        self.n_read += 1
        return super().batches_after(run_id, ordinal, limit=limit)

    def close(self, steps: range) -> BatchRow:
        """Write a row per step, none with an effective sample size, and return the last."""
        for step in steps:
            row = batch(batch_key(1, step), run_id=1, ordinal=step + 1)
            self.rows[row.key] = row
        return row


def test_first_rows_without_the_signal_are_read_once() -> None:
    log = CountingLog()
    advisor, row = Advisor(log), log.close(range(TARGET_STEPS + 5))
    for _ in range(3):
        advisor.advice(row, run=log.stored_run, steps=TARGET_STEPS + 5, alerts=())
    assert log.n_read == 1


def test_first_rows_that_are_not_all_written_are_read_again() -> None:
    log = CountingLog()
    advisor, row = Advisor(log), log.close(range(3))
    advisor.advice(row, run=log.stored_run, steps=TARGET_STEPS + 1, alerts=())
    log.close(range(3, TARGET_STEPS + 5))
    for _ in range(3):
        advisor.advice(row, run=log.stored_run, steps=TARGET_STEPS + 5, alerts=())
    assert log.n_read == 2
