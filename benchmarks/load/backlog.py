"""How long a live report waits until it is judged, while the service works off imported runs or bare starts."""

from __future__ import annotations

import math
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.load.connection import Connection
from benchmarks.load.deployments import Deployment, embedded, fleet
from benchmarks.load.sending import OK
from benchmarks.load.workload import PROJECT, Workload
from trmon_client.core import wire

HISTORY = "history"
SCALARS = ("reward", "kl", "loss", "entropy", "grad_norm", "clip_ratio", "response_length", "learning_rate")
YEAR_SECONDS = 365 * 86_400.0
LOOK_SECONDS = 0.05
GIVE_UP_SECONDS = 120.0
BUNDLE_MESSAGES = 64
WARM_UP_STEPS = 3
N_LIVE = 4
PERIOD_SECONDS = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Backlog:
    """Runs that are sent before the live ones are measured: imports of a number of steps, or bare starts without."""

    name: str
    n_runs: int = 0
    n_steps: int = 0


BACKLOGS = (
    Backlog(name="no backlog"),
    Backlog(name="1,000 imported runs of 60 steps", n_runs=1000, n_steps=60),
    Backlog(name="5,000 bare starts", n_runs=5000),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveResult:
    """How long live reports waited until they were judged, in seconds; `n_left`: imported runs not read to the end."""

    backlog: Backlog
    waited: Sequence[float]
    n_left: int

    def quantile(self, share: float) -> float:
        return float(np.quantile(self.waited, share))


def play_backlog(backlog: Backlog, *, seconds: float, is_fleet: bool = False) -> LiveResult:
    """Send a backlog, then a report a second of each live run, and measure how long each waits to be judged."""
    start, workload = fleet if is_fleet else embedded, Workload(n_runs=N_LIVE, n_ranks=1)
    with tempfile.TemporaryDirectory() as folder, start(Path(folder)) as deployment:
        _train_all(deployment.url, workload, range(WARM_UP_STEPS))
        _send(deployment.url, backlog)
        waited = _train_all(
            deployment.url, workload, range(WARM_UP_STEPS, sys.maxsize), until=time.monotonic() + seconds
        )
        return LiveResult(backlog=backlog, waited=waited, n_left=_n_left(deployment, backlog))


def _train_all(url: str, workload: Workload, steps: range, *, until: float = math.inf) -> list[float]:
    """Send a report a second of each run, each after the last one was judged; return how long each waited."""
    waited: list[float] = []

    def train(run: int) -> None:
        connection = Connection(url)
        for step in steps:
            if (began := time.monotonic()) >= until:
                break
            waited.append(_judged_seconds(connection, workload, run, step))
            time.sleep(max(0.0, began + PERIOD_SECONDS - time.monotonic()))
        connection.close()

    with ThreadPoolExecutor(workload.n_runs) as trainers:
        list(trainers.map(train, range(workload.n_runs)))
    return waited


def _judged_seconds(connection: Connection, workload: Workload, run: int, step: int) -> float:
    """Send the only report of a step; return the time from its acknowledgement until its row is stored."""
    place = f"/api/v1/runs/{PROJECT}/{workload.run(run)}"
    sent = connection.post(f"{place}/reports", workload.report(run, step=step, rank=0), content_type=wire.MSGPACK)
    assert sent.status == OK, sent.body
    began = time.monotonic()
    while connection.get(f"{place}/batches/{step}").status != OK and time.monotonic() - began < GIVE_UP_SECONDS:
        time.sleep(LOOK_SECONDS)
    return time.monotonic() - began


def _send(url: str, backlog: Backlog) -> None:
    connection = Connection(url)
    messages = (message for run in range(backlog.n_runs) for message in _messages(run, backlog.n_steps))
    for bundle in _bundled(messages):
        while (sent := connection.post("/api/v1/reports", bundle, content_type=wire.MSGPACK)).status != OK:
            assert sent.retry_after_seconds, sent.body
            time.sleep(sent.retry_after_seconds)
    connection.close()


def _messages(run: int, n_steps: int) -> Iterator[bytes]:
    name, began = f"{HISTORY}-{run:05d}", time.time() - (YEAR_SECONDS if n_steps else 0.0)
    origin = {"project": HISTORY, "run": name, "attempt": "first", "launch": name}
    yield wire.encode(wire.Start(**origin, sent_at=began))
    random = np.random.default_rng(run)
    for step in range(n_steps):
        values = dict(zip(SCALARS, random.normal(1.0, 0.1, len(SCALARS)).tolist(), strict=True))
        yield wire.encode(wire.Scalars(**origin, sent_at=began + 10 * step, sequence=step, step=step, values=values))


def _bundled(messages: Iterator[bytes]) -> Iterator[bytes]:
    bundle: list[bytes] = []
    for message in messages:
        bundle.append(message)
        if len(bundle) == BUNDLE_MESSAGES:
            yield wire.encode_bundle(bundle)
            bundle = []
    if bundle:
        yield wire.encode_bundle(bundle)


def _n_left(deployment: Deployment, backlog: Backlog) -> int:
    """Return how many of a few runs spread over the backlog are not read to their last step yet, scaled to all."""
    connection, names = Connection(deployment.url), range(0, backlog.n_runs, max(1, backlog.n_runs // 50))
    if not backlog.n_steps or not backlog.n_runs:
        return 0
    last = f"/batches/{backlog.n_steps - 2}"
    left = [connection.get(f"/api/v1/runs/{HISTORY}/{HISTORY}-{run:05d}{last}").status != OK for run in names]
    return round(backlog.n_runs * sum(left) / len(left))
