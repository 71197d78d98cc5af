"""Compares the stored data with the acknowledged reports: nothing may be missing or duplicated."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from benchmarks.load.connection import Connection
from benchmarks.load.sending import Place
from benchmarks.load.workload import PROJECT, Workload

PAGE = 500
CLOSE_SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class Verdict:
    """Acknowledged reports that are missing from the batches, and sequences that are stored twice."""

    lost: int
    duplicated: int


def verify(url: str, workload: Workload, acknowledged: Iterable[Place]) -> Verdict:
    """Wait until every step with all ranks acknowledged is closed, then count missing and duplicated data.

    Errors: AssertionError if the service does not close them in time.
    """
    ranks: Counter[tuple[int, int]] = Counter((run, step) for run, step, _ in set(acknowledged))
    whole = {place for place, n in ranks.items() if n == workload.n_ranks}
    connection = Connection(url)
    lost = duplicated = 0
    for run in sorted({run for run, _ in ranks}):
        expected = {step for of_run, step in whole if of_run == run}
        stored = _closed(connection, workload.run(run), n_steps=len(expected))
        for step, batches in stored.items():
            n_sequences = sum(batch["n_sequences"] for batch in batches)
            known = ranks[run, step] * workload.n_sequences
            duplicated += max(n_sequences - known, 0) + workload.n_sequences * (len(batches) - 1)
            lost += max(known - n_sequences, 0) // workload.n_sequences if step in expected else 0
        lost += workload.n_ranks * len(expected - stored.keys())
    connection.close()
    return Verdict(lost=lost, duplicated=duplicated)


def items(connection: Connection, path: str) -> Iterator[dict[str, Any]]:
    """Yield the items of a listing, page by page."""
    cursor = ""
    while cursor is not None:
        answer = connection.get(f"{path}{'&' if '?' in path else '?'}limit={PAGE}" + (cursor and f"&after={cursor}"))
        assert answer.status == 200, f"{path}: {answer.status} {answer.body[:200]!r}"
        page = json.loads(answer.body)
        yield from page["items"]
        cursor = page["next"]


def _closed(connection: Connection, run: str, *, n_steps: int) -> dict[int, list[dict[str, Any]]]:
    """Return a run's batches by step once there are enough steps, or whatever exists at the time limit."""
    deadline = time.monotonic() + CLOSE_SECONDS
    while True:
        found: dict[int, list[dict[str, Any]]] = {}
        for batch in items(connection, f"/api/v1/runs/{PROJECT}/{run}/batches"):
            found.setdefault(batch["step"], []).append(batch)
        if len(found) >= n_steps or time.monotonic() > deadline:
            return found
        time.sleep(0.2)
