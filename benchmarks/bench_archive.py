"""Measures backup, restore, export and import of a database with one long run: seconds, bytes and peak memory."""

from __future__ import annotations

import os
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from tests.store.builders import NOW, append, batch, batch_key, commit, report_intake, start_intake
from trmon.domain.pipeline.publish import Frontier
from trmon.store import Store
from trmon.store.maintenance.backup import back_up
from trmon.store.maintenance.restore import restore_backup

REPORTS = int(sys.argv[1]) if len(sys.argv) > 1 else 4000
SEQUENCES = 64
DIFFERENT = 512
"""The number of distinct reports, which then repeat: more than the compression window."""
PIECE = 200


def fill(folder: Path) -> None:
    """Create a run of one report per step, each of 64 sequences and three pairs, and its closed batches."""
    store = opened(folder / "trmon.sqlite")
    append(store, start_intake())
    for first in range(0, REPORTS, PIECE):
        steps = range(first, min(first + PIECE, REPORTS))
        append(store, *(report_intake(step=step, n=SEQUENCES, seed=step % DIFFERENT) for step in steps))
        rows = tuple(batch(batch_key(1, step), run_id=1, ordinal=step + 1) for step in steps)
        commit(store, 1, batches=rows, frontier=Frontier(report_id=steps[-1] + 1, notice_id=1))
    store.close()


def opened(file: Path) -> Store:
    store = Store.open(f"sqlite:///{file}")
    store.migrate()
    return store


def backed_up(folder: Path) -> Path:
    return back_up(f"sqlite:///{folder / 'trmon.sqlite'}", folder / "backup.sqlite").file


def restored(folder: Path) -> Path:
    return restore_backup(f"sqlite:///{folder / 'restored.sqlite'}", folder / "backup.sqlite").file


def exported(folder: Path) -> Path:
    store = opened(folder / "trmon.sqlite")
    store.archives.export_project("math", folder / "archive", now=NOW)
    store.close()
    return folder / "archive"


def imported(folder: Path) -> Path:
    store = opened(folder / "imported.sqlite")
    list(store.archives.import_project(folder / "archive"))
    store.close()
    return folder / "imported.sqlite"


@dataclass(frozen=True)
class Cost:
    """The cost of a command in its own process; memory is the growth of its peak."""

    seconds: float
    cpu_seconds: float
    made_mb: float
    peak_mib: float


def measured(work: Callable[[Path], Path], folder: Path) -> Cost:
    with get_context("spawn").Pool(1) as pool:
        found: Cost = pool.apply(_measured, (work, folder))
    return found


def _measured(work: Callable[[Path], Path], folder: Path) -> Cost:
    peak_mib, began, cpu_began = _peak_mib(), time.perf_counter(), time.process_time()
    made = work(folder)
    return Cost(
        seconds=time.perf_counter() - began,
        cpu_seconds=time.process_time() - cpu_began,
        made_mb=size(made) / 1e6,
        peak_mib=_peak_mib() - peak_mib,
    )


def _peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def size(path: Path) -> int:
    """Return the size of a file, or of a folder's files, in bytes."""
    files: Any = [path] if path.is_file() else (file for file in path.rglob("*") if file.is_file())
    return sum(file.stat().st_size for file in files)


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        fill(folder)
        n_bytes = size(folder / "trmon.sqlite")
        each = n_bytes / REPORTS
        print(f"{REPORTS:,} reports of {SEQUENCES} sequences in {n_bytes / 1e6:,.0f} MB, {each:,.0f} bytes each")
        print(f"{'':10}{'seconds':>9}{'CPU s':>8}{'CPU ms a report':>17}{'made MB':>9}{'peak MiB':>10}")
        for work in (backed_up, restored, exported, imported):
            cost = measured(work, folder)
            each = 1000 * cost.cpu_seconds / REPORTS
            row = f"{cost.seconds:9.1f}{cost.cpu_seconds:8.1f}{each:17.2f}{cost.made_mb:9.0f}{cost.peak_mib:10.0f}"
            print(f"{work.__name__:10}{row}")
        print(f"load {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
