"""Compares the stored data with the acknowledged reports: nothing may be missing or duplicated."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

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


StepVerdicts: TypeAlias = dict[tuple[int, int], Verdict]
"""The verdict of each run and step of which something is lost or stored twice."""


def verify(url: str, workload: Workload, acknowledged: Iterable[Place]) -> Verdict:
    """Wait until every step with all ranks acknowledged is closed, then count missing and duplicated data."""
    found = wrong_steps(url, workload, acknowledged).values()
    return Verdict(lost=sum(one.lost for one in found), duplicated=sum(one.duplicated for one in found))


def wrong_steps(url: str, workload: Workload, acknowledged: Iterable[Place]) -> StepVerdicts:
    """Wait until every step with all ranks acknowledged is closed, then return the steps with wrong data."""
    ranks: Counter[tuple[int, int]] = Counter((run, step) for run, step, _ in set(acknowledged))
    whole = {place for place, n in ranks.items() if n == workload.n_ranks}
    connection = Connection(url)
    wrong: StepVerdicts = {}
    for run in sorted({run for run, _ in ranks}):
        expected = {step for of_run, step in whole if of_run == run}
        stored = _closed(connection, workload.run(run), n_steps=len(expected))
        for step in expected | stored.keys():
            batches = stored.get(step, [])
            n_sequences = sum(batch["n_sequences"] for batch in batches)
            known = ranks[run, step] * workload.n_sequences
            missing = max(known - n_sequences, 0) // workload.n_sequences if step in expected else 0
            twice = max(n_sequences - known, 0) + workload.n_sequences * max(len(batches) - 1, 0)
            if missing or twice:
                wrong[run, step] = Verdict(lost=missing, duplicated=twice)
    connection.close()
    return wrong


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
    """Return a run's batches by step once there are enough steps, or whatever exists once no more are closed."""
    n_before, deadline = 0, 0.0
    while True:
        found: dict[int, list[dict[str, Any]]] = {}
        for batch in items(connection, f"/api/v1/runs/{PROJECT}/{run}/batches"):
            found.setdefault(batch["step"], []).append(batch)
        if len(found) > n_before or not deadline:
            n_before, deadline = len(found), time.monotonic() + CLOSE_SECONDS
        if len(found) >= n_steps or time.monotonic() > deadline:
            return found
        time.sleep(0.2)
