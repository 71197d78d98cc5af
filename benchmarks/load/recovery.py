"""Measures how long a service takes after a fault until a report is acknowledged and its batch is closed."""

from __future__ import annotations

import time

from benchmarks.load.connection import Connection
from benchmarks.load.sending import OK
from benchmarks.load.workload import PROJECT, Workload
from trmon_client.core import wire

RUN = Workload(first_run=90_000, n_ranks=1, n_sequences=4)
ANSWER_SECONDS = 3.0
RECOVERY_SECONDS = 90.0
RETRY_SECONDS = 0.05


class RecoveryProbe:
    """A run of one rank that sends a report whenever it is asked, and waits for its batch."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.acknowledged: list[tuple[int, int, int]] = []

    def wait(self) -> None:
        """Return once a new report is closed. Errors: AssertionError if that takes too long."""
        step = len(self.acknowledged)
        run = f"/api/v1/runs/{PROJECT}/{RUN.run(0)}"
        deadline = time.monotonic() + RECOVERY_SECONDS
        connection = Connection(self._url, timeout_seconds=ANSWER_SECONDS)
        body = RUN.report(0, step=step, rank=0)
        while (answer := connection.post(f"{run}/reports", body, content_type=wire.MSGPACK)).status != OK:
            _pause(deadline, f"not acknowledged: {answer.status} {answer.body[:300]!r}")
        self.acknowledged.append((0, step, 0))
        while (answer := connection.get(f"{run}/batches/{step}")).status != OK:
            _pause(deadline, f"not closed: {answer.status} {answer.body[:300]!r}")
        connection.close()


def _pause(deadline: float, failure: str) -> None:
    assert time.monotonic() < deadline, f"after {RECOVERY_SECONDS:g} s still {failure}"
    time.sleep(RETRY_SECONDS)
