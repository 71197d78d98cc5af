"""The size of the database over a month in which runs end each day and move to a lake.

    python -m benchmarks.bench_lake_month --runs 20 --steps 20

The clock is an argument: a day takes seconds. Compare with `--no-lake`, where retention alone deletes reports.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

from tests.fixtures.databases import open_migrated_store
from tests.store.lake.lakes import put_ended_run
from trmon.store import Store

START = 1_798_761_600.0
"""The first of January 2027, in seconds."""
DAY = 86_400.0
LIMITS = {"max_age_seconds": 30 * DAY, "max_bytes_per_run": 2 << 30, "max_bytes": 50 << 30}


def main() -> None:
    """Simulate the month and print a line a day."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=20, help="runs that end each day")
    parser.add_argument("--steps", type=int, default=20, help="steps of a run, a report of 8 sequences each")
    parser.add_argument("--days", type=int, default=30)
    parser.add_argument("--after-days", type=float, default=7.0, help="how long a run is idle before it moves")
    parser.add_argument("--no-lake", action="store_true")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        store = open_migrated_store(Path(folder) / "data" / "trmon.sqlite")
        lake = None if given.no_lake else store.lake(f"{folder}/lake")
        print("day  runs  moved  database MB  used MB  lake MB  seconds")
        for day in range(given.days):
            began_at, now = time.monotonic(), START + day * DAY
            for i in range(given.runs):
                put_ended_run(store, f"run-{day}-{i}", steps=given.steps, now=now)
            if lake is not None:
                lake.run_pass(now=now + DAY / 2, after_seconds=given.after_days * DAY)
            store.retention.prune(now=now + DAY / 2, keeps_for_lake=lake is not None, **LIMITS)
            moved = store.lake_batches.status(now=now, after_seconds=0.0).moved_attempts
            file, used = database_bytes(store)
            print(
                f"{day + 1:3}  {(day + 1) * given.runs:4}  {moved:5}  {file / 1e6:11.2f}  {used / 1e6:7.2f}  "
                f"{folder_bytes(Path(folder) / 'lake') / 1e6:7.2f}  {time.monotonic() - began_at:7.1f}",
                flush=True,
            )
        store.close()


def database_bytes(store: Store) -> tuple[int, int]:
    """Return the bytes of the database's file, and those of its pages that are not free."""
    with store._reader.connect() as connection:
        pages, free, size = (
            connection.exec_driver_sql(f"PRAGMA {name}").scalar_one()
            for name in ("page_count", "freelist_count", "page_size")
        )
    return pages * size, (pages - free) * size


def folder_bytes(folder: Path) -> int:
    """Return the bytes of the files under a folder; 0 if there is none."""
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


if __name__ == "__main__":
    main()
