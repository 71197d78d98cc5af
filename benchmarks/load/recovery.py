"""Measures how long a service takes after a fault until a report is acknowledged and its batch is closed."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass

from benchmarks.load.connection import Answer, Connection
from benchmarks.load.sending import OK
from benchmarks.load.workload import PROJECT, Workload
from trmon_client.core import wire

RUN = Workload(first_run=90_000, n_ranks=1, n_sequences=4)
ANSWER_SECONDS = 3.0
RECOVERY_SECONDS = 180.0
"""Time limit of a recovery: a process whose start needs 4 s of CPU time takes a minute on a busy machine."""
RETRY_SECONDS = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """When a new report was acknowledged and when its batch was closed, by `time.perf_counter`; inf: not in time.

    `failure` is the last response if one of them did not happen.
    """

    acknowledged_at: float = math.inf
    closed_at: float = math.inf
    failure: str = ""


class RecoveryProbe:
    """A run of one rank that sends a report whenever it is asked, and waits for its batch."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.acknowledged: list[tuple[int, int, int]] = []

    def wait(self) -> Recovery:
        """Send a new report and wait until its batch is closed, or for 180 s."""
        step = len(self.acknowledged)
        run = f"/api/v1/runs/{PROJECT}/{RUN.run(0)}"
        deadline = time.monotonic() + RECOVERY_SECONDS
        connection = Connection(self._url, timeout_seconds=ANSWER_SECONDS)
        body = RUN.report(0, step=step, rank=0)
        with closing(connection):
            answer = _until_ok(lambda: connection.post(f"{run}/reports", body, content_type=wire.MSGPACK), deadline)
            if answer.status != OK:
                return Recovery(failure=f"not acknowledged: {answer.status} {answer.body[:300]!r}")
            acknowledged_at = time.perf_counter()
            self.acknowledged.append((0, step, 0))
            answer = _until_ok(lambda: connection.get(f"{run}/batches/{step}"), deadline)
            if answer.status != OK:
                failure = f"not closed: {answer.status} {answer.body[:300]!r}"
                return Recovery(acknowledged_at=acknowledged_at, failure=failure)
            return Recovery(acknowledged_at=acknowledged_at, closed_at=time.perf_counter())


def _until_ok(ask: Callable[[], Answer], deadline: float) -> Answer:
    """Ask until the response is 200 or the time is over; return the last response."""
    while (answer := ask()).status != OK and time.monotonic() < deadline:
        time.sleep(RETRY_SECONDS)
    return answer
