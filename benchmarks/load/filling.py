"""Fills a database with history through the store itself, faster than trainers could send it."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np

from tests.store.builders import batch, batch_key, intake, report, start_intake
from trmon.domain.messages import PreparedMessage
from trmon.domain.pipeline.run_update import Frontier, RunUpdate
from trmon.domain.runs.run import RunState
from trmon.store import Store
from trmon_client.core.signals.catalogue import SIGNALS

DATABASE = "trmon.sqlite"
RUNS_OF_BATCHES = 100
PASS_BATCHES = 256
RUNS_A_WRITE = 500
REPORT_SEQUENCES = 64
PAST, RUN = "past", "run-0"


def fill_batches(folder: Path, n_batches: int) -> None:
    """Write closed batches of finished runs, each with every signal."""
    store = Store.open(f"sqlite:///{folder / DATABASE}")
    store.migrate()
    values = np.random.default_rng(0).normal(size=(PASS_BATCHES, len(SIGNALS)))
    signals = [dict(zip(SIGNALS, row.tolist(), strict=True)) for row in values]
    n_steps = n_batches // RUNS_OF_BATCHES
    for run_id, attempt_id in _made(store, RUNS_OF_BATCHES, project=PAST):
        for first in range(0, n_steps, PASS_BATCHES):
            steps = range(first, min(first + PASS_BATCHES, n_steps))
            batches = tuple(
                batch(batch_key(attempt_id, step), run_id=run_id, ordinal=step + 1, signals=signals[step - first])
                for step in steps
            )
            store.run_log.commit([RunUpdate(run_id=run_id, frontier=Frontier(), batches=batches)])[0].result()
        end = RunUpdate(run_id=run_id, frontier=Frontier(notice_id=1 << 40), state=RunState.FINISHED)
        store.run_log.commit([end])[0].result()
    store.close()


def fill_runs(folder: Path, n_runs: int) -> None:
    """Write runs that have started and not ended, as a killed service leaves them."""
    store = Store.open(f"sqlite:///{folder / DATABASE}")
    store.migrate()
    for first in range(0, n_runs, RUNS_A_WRITE):
        _made(store, min(RUNS_A_WRITE, n_runs - first), project=f"past-{first}")
    store.close()


def fill_sequences(folder: Path, n_sequences: int) -> None:
    """Write the reports of one run of one rank, and the resulting batches."""
    store = Store.open(f"sqlite:///{folder / DATABASE}")
    store.migrate()
    [(run_id, attempt_id)] = _made(store, 1, project=PAST)
    made = [intake(report(n=REPORT_SEQUENCES, seed=seed), project=PAST, run=RUN) for seed in range(8)]
    n_steps = n_sequences // REPORT_SEQUENCES
    for first in range(0, n_steps, PASS_BATCHES):
        steps = range(first, min(first + PASS_BATCHES, n_steps))
        reports = [_at(made[step % len(made)], step) for step in steps]
        for future in store.reports.append(reports, now=time.time()):
            future.result()
        batches = tuple(batch(batch_key(attempt_id, step), run_id=run_id, ordinal=step + 1) for step in steps)
        store.run_log.commit([RunUpdate(run_id=run_id, frontier=Frontier(), batches=batches)])[0].result()
    end = RunUpdate(run_id=run_id, frontier=Frontier(report_id=1 << 40, notice_id=1 << 40), state=RunState.FINISHED)
    store.run_log.commit([end])[0].result()
    store.close()


def _at(taken: PreparedMessage, step: int) -> PreparedMessage:
    """Return a copy of a report for another step; its column metadata is unchanged."""
    return replace(taken, message=msgspec.structs.replace(taken.message, step=step))


def _made(store: Store, n_runs: int, *, project: str) -> list[tuple[int, int]]:
    """Return the ids of new runs and their attempts."""
    starts = [start_intake(project=project, run=f"run-{i}") for i in range(n_runs)]
    receipts = [future.result() for future in store.reports.append(starts, now=time.time())]
    return [(receipt.run_id, receipt.attempt_id) for receipt in receipts]
