"""One scenario: loads a fresh service, measures time, CPU and bytes, and verifies the stored data."""

from __future__ import annotations

import math
import re
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from benchmarks.load.connection import Connection
from benchmarks.load.deployments import Deployment, embedded, fleet
from benchmarks.load.processes import cpu_seconds, resident_bytes
from benchmarks.load.sending import OK, Pace, Senders, Sent
from benchmarks.load.verification import CLOSE_SECONDS, Verdict, verify
from benchmarks.load.workload import PROJECT, Workload

DRAINED_STEPS = 20
LOOK_SECONDS = 0.2
"""Polling more often would show in the CPU time per report."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A workload, the number of connections and the pace."""

    name: str
    workload: Workload
    n_connections: int
    pace: Pace


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The results of a scenario. `cpu_seconds` is the service's own, until every batch is closed."""

    scenario: Scenario
    sent: Sent
    seconds: float
    cpu_seconds: float
    drain_seconds: float
    close_lag_ms: float
    resident_bytes: int
    verdict: Verdict
    stored_bytes: int

    @property
    def n_reports(self) -> int:
        return len(self.sent.acknowledged)

    @property
    def per_second(self) -> float:
        return self.n_reports / self.seconds

    @property
    def cpu_ms(self) -> float:
        """The service's CPU time per report, in milliseconds."""
        return self.cpu_seconds / self.n_reports * 1000


def play(scenario: Scenario, *, is_fleet: bool = False) -> Result:
    with tempfile.TemporaryDirectory() as folder, (fleet if is_fleet else embedded)(Path(folder)) as deployment:
        return measured(scenario, deployment)


def measured(scenario: Scenario, deployment: Deployment) -> Result:
    cpu_before, bytes_before = cpu_seconds(deployment.pids()), deployment.stored_bytes()
    senders = Senders(
        lambda: deployment.url, scenario.workload, n_connections=scenario.n_connections, pace=scenario.pace
    )
    senders.start()
    try:
        sent, seconds = senders.wait()
    finally:
        # SIGTERM ends the wait: the reports in flight are acknowledged before the service stops.
        senders.stop()
        senders.wait()
    assert not sent.failures, sent.failures[:3]
    drain_seconds = drain(deployment.url, sent, workload=scenario.workload)
    cpu = cpu_seconds(deployment.pids()) - cpu_before
    return Result(
        scenario=scenario,
        sent=sent,
        seconds=seconds,
        cpu_seconds=cpu,
        drain_seconds=drain_seconds,
        close_lag_ms=_close_lag_ms(deployment.url),
        resident_bytes=resident_bytes(deployment.pids()),
        verdict=verify(deployment.url, scenario.workload, sent.acknowledged),
        stored_bytes=deployment.stored_bytes() - bytes_before,
    )


def drain(url: str, sent: Sent, *, workload: Workload) -> float:
    """Wait until the newest complete steps are closed, so that their CPU time counts; return the wait in seconds."""
    began = time.perf_counter()
    connection = Connection(url)
    ranks = Counter((run, step) for run, step, _ in sent.acknowledged)
    newest = [place for place, n in ranks.items() if n == workload.n_ranks][-DRAINED_STEPS:]
    for run, step in newest:
        path = f"/api/v1/runs/{PROJECT}/{workload.run(run)}/batches/{step}"
        while connection.get(path).status != OK:
            assert time.perf_counter() - began < CLOSE_SECONDS, f"{path} is not closed after {CLOSE_SECONDS} s"
            time.sleep(LOOK_SECONDS)
    connection.close()
    return time.perf_counter() - began


def _close_lag_ms(url: str) -> float:
    """Return the mean time from a batch's newest report to its close, over all batches so far."""
    text = Connection(url).get("/metrics").body.decode()
    found = (
        re.search(r"^trmon_close_lag_seconds_sum (\S+)\n", text, re.MULTILINE),
        re.search(r"^trmon_close_lag_seconds_count (\S+)\n", text, re.MULTILINE),
    )
    total, count = (float(match.group(1)) if match else math.nan for match in found)
    return 1000 * total / count if count else math.nan
