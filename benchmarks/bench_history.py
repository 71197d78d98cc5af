"""Measures reads of history: a run of 100,000 steps with 100 signals, 1,000 points of one; prints a table.

PYTHONPATH=. python benchmarks/bench_history.py
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.load.filling import write_steps
from tests.fixtures.databases import open_migrated_store
from tests.store.builders import append, start_intake
from trmon.domain.access import EVERYTHING
from trmon.store import Store

STEPS = 100_000
SIGNALS = tuple(f"total_signal_{i}" for i in range(100))
REPEATS = 20


def main() -> None:
    """Write the run, read it in several ways, and print the times."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trmon.db"
        store = open_migrated_store(path)
        [receipt] = append(store, start_intake())
        rows = [
            dict(zip(SIGNALS, row, strict=True))
            for row in np.random.default_rng(0).normal(size=(STEPS, len(SIGNALS))).tolist()
        ]
        began = time.perf_counter()
        ids = receipt.run_id, receipt.attempt_id or 0
        write_steps(store, ids, STEPS, fields_of=lambda step: {"signals": rows[step]})
        seconds = time.perf_counter() - began
        table = Table("what", "median ms", "worst ms", title=f"{STEPS:,} steps x {len(SIGNALS)} signals")
        for what, read in _reads(store, receipt.run_id).items():
            times = [_milliseconds(read) for _ in range(REPEATS)]
            table.add_row(what, f"{statistics.median(times):.1f}", f"{max(times):.1f}")
        store.close()
        Console().print(table)
        Console().print(
            f"written at {STEPS / seconds:,.0f} batches/s; {path.stat().st_size / STEPS:,.0f} bytes a batch"
        )


def _reads(store: Store, run_id: int) -> dict[str, Callable[[], object]]:
    def series(n_signals: int, **options: int) -> Callable[[], object]:
        names = SIGNALS[:n_signals]
        return lambda: store.signals.series(run_id, names=names, access=EVERYTHING, **options)

    return {
        "1,000 points of 1 signal, whole run": series(1),
        "1,000 points of 8 signals, whole run": series(8),
        "1 signal, the last 500 steps, exact": series(1, from_step=STEPS - 500),
        "1 signal, steps 40,000 to 50,000": series(1, from_step=40_000, to_step=50_000),
    }


def _milliseconds(read: Callable[[], object]) -> float:
    began = time.perf_counter()
    read()
    return (time.perf_counter() - began) * 1000


if __name__ == "__main__":
    main()
