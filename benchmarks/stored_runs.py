"""Peak memory of `trmon whatif` and `trmon backtest` over a lake of 100 and of 1,000 runs, in one process and over Ray.

Each run has STEPS steps of 8 sequences. Run it in the environment of the lab, which has psutil and Ray.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import psutil

from tests.fixtures.databases import open_migrated_store
from tests.store.lake.lakes import move_to_lake, put_ended_run

RUNS = (100, 1000)
STEPS = 5
COMMANDS = (
    ("whatif", "--policy", "trm_max(delta=0.02)", "--json", "--source"),
    ("backtest", "--policy", "trm_max(delta=0.02)", "--json"),
)
WAYS: tuple[tuple[str, tuple[str, ...]], ...] = (("this process", ()), ("Ray, 2 workers", ("--workers", "2")))
SAMPLE_SECONDS = 0.1
MEGABYTE = 1e6


def make_lake(folder: Path, *, n_runs: int) -> Path:
    """Return a lake of runs that have moved."""
    store = open_migrated_store(folder / "trmon.sqlite")
    for number in range(n_runs):
        put_ended_run(store, f"run-{number:05}", steps=STEPS)
    move_to_lake(store, str(folder / "lake"))
    store.close()
    return folder / "lake"


def measure(command: Sequence[object]) -> tuple[float, Counter[str]]:
    """Return the seconds that a command takes, and the peak RSS, bytes, of itself and of its largest Ray task."""
    began, peaks = time.monotonic(), Counter[str]()
    with subprocess.Popen(
        [sys.executable, "-W", "ignore", "-m", "trmon", *map(str, command)], stdout=subprocess.DEVNULL
    ) as process:
        root = psutil.Process(process.pid)
        while process.poll() is None:
            for name, n_bytes in _sizes(root):
                peaks[name] = max(peaks[name], n_bytes)
            time.sleep(SAMPLE_SECONDS)
    assert process.returncode == 0
    return time.monotonic() - began, peaks


def _sizes(root: psutil.Process) -> list[tuple[str, int]]:
    found = []
    for process in (root, *root.children(recursive=True)):
        try:
            is_task = "".join(process.cmdline()[:1]).startswith("ray::")
            if is_task or process == root:
                found.append(("task" if is_task else "command", process.memory_info().rss))
        except psutil.NoSuchProcess:
            continue
    return found


def main() -> None:
    print("| command | runs | where | seconds | peak RSS, MB | of its largest task, MB |")
    print("| --- | ---: | --- | ---: | ---: | ---: |")
    for n_runs in RUNS:
        with TemporaryDirectory() as folder:
            lake = make_lake(Path(folder), n_runs=n_runs)
            for command in COMMANDS:
                for where, options in WAYS:
                    seconds, peaks = measure([*command, lake, *options])
                    own, task = (
                        f"{peaks[name] / MEGABYTE:,.0f}" if peaks[name] else "" for name in ("command", "task")
                    )
                    print(f"| {command[0]} | {n_runs:,} | {where} | {seconds:.1f} | {own} | {task} |", flush=True)


if __name__ == "__main__":
    main()
