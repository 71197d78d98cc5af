"""Fills a database with history through the store itself, faster than trainers could send it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from tests.fixtures.databases import open_migrated_store
from tests.store.builders import append, batch, batch_key, commit, intake, report, start_intake
from trmon.domain.messages import PreparedMessage
from trmon.domain.pipeline.publish import Frontier
from trmon.domain.runs.run import RunState
from trmon.store import Store
from trmon_client.core.signals.catalogue import SIGNALS

DATABASE = "trmon.sqlite"
RUNS_OF_BATCHES = 100
PASS_BATCHES = 256
"""Batches per commit, as a worker writes them while it catches up."""
RUNS_A_WRITE = 500
REPORT_SEQUENCES = 64
PAST, RUN = "past", "run-0"


def write_steps(
    store: Store, ids: tuple[int, int], n_steps: int, *, fields_of: Callable[[int], dict[str, Any]]
) -> None:
    """Write the closed batches of a run and attempt; `fields_of` returns the fields of a step's batch."""
    run_id, attempt_id = ids
    for first in range(0, n_steps, PASS_BATCHES):
        steps = range(first, min(first + PASS_BATCHES, n_steps))
        batches = tuple(
            batch(batch_key(attempt_id, step), run_id=run_id, ordinal=step + 1, **fields_of(step)) for step in steps
        )
        commit(store, run_id, batches=batches, last_step=steps[-1], attempt_id=attempt_id)


def fill_batches(folder: Path, n_batches: int) -> None:
    """Write closed batches of finished runs, each with every signal."""
    store = open_migrated_store(folder / DATABASE)
    values = np.random.default_rng(0).normal(size=(PASS_BATCHES, len(SIGNALS)))
    signals = [dict(zip(SIGNALS, row.tolist(), strict=True)) for row in values]
    for ids in _made(store, RUNS_OF_BATCHES, project=PAST):
        steps = n_batches // RUNS_OF_BATCHES
        write_steps(store, ids, steps, fields_of=lambda step: {"signals": signals[step % PASS_BATCHES]})
        commit(store, ids[0], frontier=Frontier(notice_id=1 << 40), state=RunState.FINISHED)
    store.close()


def fill_runs(folder: Path, n_runs: int) -> None:
    """Write runs that have started and not ended, as a killed service leaves them."""
    store = open_migrated_store(folder / DATABASE)
    for first in range(0, n_runs, RUNS_A_WRITE):
        _made(store, min(RUNS_A_WRITE, n_runs - first), project=f"past-{first}")
    store.close()


def fill_sequences(folder: Path, n_sequences: int) -> None:
    """Write the reports of one run of one rank, and the resulting batches."""
    store = open_migrated_store(folder / DATABASE)
    [ids] = _made(store, 1, project=PAST)
    made = [intake(report(n=REPORT_SEQUENCES, seed=seed), project=PAST, run=RUN) for seed in range(8)]
    n_steps = n_sequences // REPORT_SEQUENCES
    for first in range(0, n_steps, PASS_BATCHES):
        steps = range(first, min(first + PASS_BATCHES, n_steps))
        append(store, *(_at(made[step % len(made)], step) for step in steps), now=time.time())
    write_steps(store, ids, n_steps, fields_of=lambda _: {})
    commit(store, ids[0], frontier=Frontier(report_id=1 << 40, notice_id=1 << 40), state=RunState.FINISHED)
    store.close()


def _at(taken: PreparedMessage, step: int) -> PreparedMessage:
    """Return a copy of a report for another step; its column metadata is unchanged."""
    return replace(taken, message=msgspec.structs.replace(taken.message, step=step))


def _made(store: Store, n_runs: int, *, project: str) -> list[tuple[int, int]]:
    """Return the ids of new runs and their attempts."""
    starts = [start_intake(project=project, run=f"run-{i}") for i in range(n_runs)]
    return [(receipt.run_id, receipt.attempt_id or 0) for receipt in append(store, *starts, now=time.time())]
