"""Measures a service's answers from the lake and from the database; the lake holds some hundred other runs.

python -m benchmarks.bench_lake
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TypeAlias

import httpx
import numpy as np
from rich.console import Console
from rich.table import Table

from tests.fixtures.databases import open_migrated_store
from tests.fixtures.service import ThreadedService
from tests.store.builders import append, batch, batch_key, report_intake, start_intake
from tests.store.lake.lakes import delete_moved, move_to_lake
from trmon.domain.batches.batch import DecisionRow, PolicyRole
from trmon.domain.messages import WriteResult
from trmon.domain.pipeline.publish import Frontier, RunUpdate
from trmon.domain.runs.run import RunState
from trmon.store import Store

LONG_STEPS, SIGNALS = 100_000, tuple(f"total_signal_{i}" for i in range(100))
STEPS, SEQUENCES = 400, 256
OTHER_RUNS, OTHER_STEPS = 300, 10
PASS_BATCHES = 64
REPEATS = 15
LONG, STEP_RUN = "/api/v1/runs/math/long", "/api/v1/runs/math/reports"
Times: TypeAlias = dict[str, list[float]]


def main() -> None:
    """Write the runs, ask for them from the database, move them, and ask for them from the lake."""
    with tempfile.TemporaryDirectory() as folder:
        data_dir, lake_url = Path(folder) / "data", f"{folder}/lake"
        url = f"sqlite:///{data_dir}/trmon.sqlite"
        store = open_migrated_store(data_dir / "trmon.sqlite")
        _write_runs(store)
        store.close()
        stored = _times(data_dir, lake_url)
        store = Store.open(url)
        began = time.perf_counter()
        move_to_lake(store, lake_url)
        move_seconds = time.perf_counter() - began
        delete_moved(store)
        store.close()
        moved = _times(data_dir, lake_url)
        n_bytes = sum(file.stat().st_size for file in Path(lake_url).rglob("*") if file.is_file())
    _print(stored, moved)
    Console().print(f"moved in {move_seconds:,.0f} s; the lake has {n_bytes / 2**20:,.0f} MiB")


def _write_runs(store: Store) -> None:
    names = [f"other-{i}" for i in range(OTHER_RUNS)]
    for name in names[: OTHER_RUNS // 2]:
        _write_run(store, name, steps=OTHER_STEPS, n_sequences=8)
    _write_run(store, "reports", steps=STEPS, n_sequences=SEQUENCES)
    _write_run(store, "long", steps=LONG_STEPS, n_sequences=0)
    for name in names[OTHER_RUNS // 2 :]:
        _write_run(store, name, steps=OTHER_STEPS, n_sequences=8)


def _write_run(store: Store, name: str, *, steps: int, n_sequences: int) -> None:
    """Write a run that has ended; without sequences it has no reports."""
    [started] = append(store, start_intake(run=name))
    frontier = Frontier(notice_id=started.id)
    if n_sequences:
        messages = (report_intake(run=name, step=step, n=n_sequences, seed=step % 8) for step in range(steps))
        frontier = Frontier(notice_id=started.id, report_id=append(store, *messages)[-1].id)
    rng = np.random.default_rng(0)
    for first in range(0, steps, PASS_BATCHES):
        part = range(first, min(first + PASS_BATCHES, steps))
        values = rng.normal(size=(len(part), len(SIGNALS)))
        store.run_log.commit([_update(started, part, values.tolist(), frontier=frontier, n_sequences=n_sequences)])[
            0
        ].result()


def _update(
    started: WriteResult, steps: range, values: Sequence[Sequence[float]], *, frontier: Frontier, n_sequences: int
) -> RunUpdate:
    keys = [batch_key(started.attempt_id, step) for step in steps]
    rows = zip(keys, values, strict=True)
    return RunUpdate(
        run_id=started.run_id,
        frontier=frontier,
        batches=tuple(
            batch(
                key,
                run_id=started.run_id,
                ordinal=key.step + 1,
                signals=dict(zip(SIGNALS, row, strict=True)),
                n_sequences=n_sequences,
            )
            for key, row in rows
        ),
        decisions=tuple(
            DecisionRow(
                key=key,
                policy_hash="p",
                policy_name="trm",
                role=PolicyRole.ACTIVE,
                counts={"accepted": n_sequences},
                mask_rate=0.0,
                accepted=b"\xff" * (n_sequences // 8),
            )
            for key in keys
        ),
        state=RunState.FINISHED,
        attempt_id=started.attempt_id,
        last_step=steps[-1],
    )


def _requests() -> Iterator[tuple[str, Sequence[str]]]:
    """Yield what is measured, and the paths of its requests, others each time."""
    rng = np.random.default_rng(1)
    for _ in range(REPEATS):
        step = f"{STEP_RUN}/batches/{rng.integers(STEPS)}"
        yield "a step: batch, decisions, 256 sequences", (step, f"{step}/decisions", f"{step}/sequences")
        one, *eight = rng.choice(SIGNALS, 9, replace=False)
        yield "1,000 points of 1 signal, 100,000 steps", (f"{LONG}/signals?names={one}",)
        yield "1,000 points of 8 signals, 100,000 steps", (f"{LONG}/signals?names={','.join(eight)}",)
        first = rng.integers(LONG_STEPS - 500)
        yield "500 steps of 1 signal, exact", (f"{LONG}/signals?names={one}&from={first}&to={first + 499}",)
        yield "a step of 100,000", (f"{LONG}/batches/{rng.integers(LONG_STEPS)}",)
        yield "100 newest batches of 100,000", (f"{LONG}/batches",)
        yield "diagnosis: the newest 256 steps", (f"{LONG}/diagnosis",)


def _times(data_dir: Path, lake_url: str) -> Times:
    """Return how long a service that has just started takes, in ms."""
    times: Times = {}
    service = ThreadedService(data_dir, lake_url=lake_url)
    with service.client() as client:
        for what, paths in _requests():
            times.setdefault(what, []).append(sum(_milliseconds(client, path) for path in paths))
    service.stop()
    return times


def _milliseconds(client: httpx.Client, path: str) -> float:
    began = time.perf_counter()
    client.get(path).raise_for_status()
    return (time.perf_counter() - began) * 1000


def _print(stored: Times, moved: Times) -> None:
    table = Table("what", "database, median ms", "lake, median ms", "lake, first ms", "lake, worst ms")
    for what, times in moved.items():
        numbers = (statistics.median(stored[what]), statistics.median(times), times[0], max(times))
        table.add_row(what, *(f"{number:,.0f}" for number in numbers))
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
