"""Measures the first answers of a service that has just started over many runs; prints a table.

PYTHONPATH=.:client python benchmarks/bench_fleet.py [runs] [steps]
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

import httpx

from tests.fixtures.service import ThreadedService
from tests.store.builders import NOW, batch, batch_key, start_intake
from trmon.domain.access import EVERYTHING
from trmon.domain.health.run_summary import OutdatedSummary, RunSummary
from trmon.domain.pipeline.run_update import Frontier, RunUpdate
from trmon.domain.runs.run import RunState
from trmon.fleet.summaries import summarize_run
from trmon.store import Store

PAGE = 1000
NAMES = ("total_kl_k3", "total_d_mean", "ess_fraction", "mask_rate", "reward_mean", "entropy", "step_seconds")


def main(n_runs: int = 2000, n_steps: int = 64) -> None:
    """Print, without and with stored summaries, how many runs have a diagnosis, and the time of each read of all."""
    for is_stored in (False, True):
        with tempfile.TemporaryDirectory() as name:
            _measure(Path(name) / "data", n_runs, n_steps, is_stored=is_stored)


def _measure(folder: Path, n_runs: int, n_steps: int, *, is_stored: bool) -> None:
    folder.mkdir()
    url = f"sqlite:///{folder / 'trmon.sqlite'}"
    _fill(url, n_runs, n_steps)
    if is_stored:
        print(f"{1000 * _summarize(url) / n_runs:.1f} ms a summary of {n_steps} steps")
    service = ThreadedService(folder)
    print(f"{'with' if is_stored else 'without'} stored summaries, {n_runs} runs:")
    with httpx.Client(base_url=service.url, timeout=60.0) as client:
        for number in range(1, 4):
            started_at = time.perf_counter()
            found = _read(client)
            took = time.perf_counter() - started_at
            judged = sum(run["judged_step"] is not None for run in found)
            print(f"read {number}: {judged} of {len(found)} diagnosed, {took:.2f} s")
    service.stop()


def _read(client: httpx.Client) -> list[dict[str, object]]:
    found: list[dict[str, object]] = []
    after = None
    while True:
        page = client.get("/api/v1/fleet", params={"limit": PAGE} | ({"after": after} if after else {})).json()
        found += page["items"]
        after = page["next"]
        if after is None:
            return found


def _fill(url: str, n_runs: int, n_steps: int) -> None:
    """Store runs that have ended."""
    store = Store.open(url)
    store.migrate()
    for first in range(0, n_runs, 500):
        starts = [start_intake("math", f"run-{i:05}") for i in range(first, min(first + 500, n_runs))]
        receipts = [written.result() for written in store.reports.append(starts, now=NOW)]
        updates = [_update(receipt.run_id, receipt.attempt_id or 0, n_steps) for receipt in receipts]
        for done in store.run_log.commit(updates):
            done.result()
    store.close()


def _summarize(url: str) -> float:
    """Store the summaries of all runs; return the seconds that they took."""
    store = Store.open(url)
    started_at = time.perf_counter()
    outdated = store.summaries.outdated()
    for first in range(0, len(outdated), 100):
        store.summaries.write([_summary(store, one) for one in outdated[first : first + 100]]).result()
    seconds = time.perf_counter() - started_at
    store.close()
    return seconds


def _summary(store: Store, outdated: OutdatedSummary) -> RunSummary:
    run = store.runs.by_id(outdated.run_id)
    return summarize_run(store, run, basis=outdated.basis, access=EVERYTHING, now=time.time())


def _update(run_id: int, attempt_id: int, n_steps: int) -> RunUpdate:
    rows = [
        batch(
            batch_key(attempt_id, step),
            run_id=run_id,
            ordinal=step + 1,
            signals={name: 0.001 * (1 + (step + at) % 7) for at, name in enumerate(NAMES)},
        )
        for step in range(n_steps)
    ]
    return RunUpdate(
        run_id=run_id,
        frontier=Frontier(report_id=n_steps, notice_id=n_steps),
        batches=tuple(rows),
        last_step=n_steps - 1,
        attempt_id=attempt_id,
        state=RunState.FINISHED,
    )


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
