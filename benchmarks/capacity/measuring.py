"""Drives a deployment through the cells of load, in rounds, and returns a sample of each."""

from __future__ import annotations

import math
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean

from benchmarks.capacity.load_cells import CELLS, IDLE_RUNS, TOP, LoadCell
from benchmarks.capacity.load_sample import LoadSample
from benchmarks.capacity.side_load import side_load
from benchmarks.capacity.station_meter import EmbeddedMeter, FleetMeter, StationMeter
from benchmarks.load.deployments import Deployment, embedded, fleet
from benchmarks.load.scenario import drain
from benchmarks.load.sending import Pace, Senders, Sent
from benchmarks.load.workload import CONTENTS, Workload
from trmon.domain.capacity.architecture import DeploymentKind
from trmon.domain.capacity.fleet_workload import SCRAPED_RUNS
from trmon.domain.capacity.station import Activity, Station

CONNECTIONS = 8
TOP_STEPS, TOP_TRIES = 20, 4
NO_LIMIT = 3600.0
SETTLE_SECONDS = 8.0
"""Until the summaries of new runs are stored."""
NEW_STEPS = 2
"""After this many steps a run is no longer new."""


@dataclass(slots=True)
class MeasuredDeployment:
    """A deployment under measurement: its meter, the next step of each workload, and the active runs."""

    kind: DeploymentKind
    deployment: Deployment
    meter: StationMeter
    top_per_second: float = 0.0
    n_active: int = 0
    next_step: dict[int, int] = field(default_factory=lambda: defaultdict(int))

    def send(self, workload: Workload, n_steps: int, *, per_second: float | None = None) -> tuple[Sent, float]:
        """Send the next steps of every run, wait until they are closed, and return what was sent, and in which time."""
        first = self.next_step[workload.first_run]
        self.next_step[workload.first_run] = first + n_steps
        pace = Pace(seconds=NO_LIMIT, per_second=per_second)
        steps = range(first, first + n_steps)
        senders = Senders(lambda: self.deployment.url, workload, n_connections=CONNECTIONS, pace=pace, steps=steps)
        senders.start()
        sent, seconds = senders.wait()
        assert not sent.failures, sent.failures[:3]
        drain(self.deployment.url, sent, workload=workload)
        return sent, seconds

    def warm_up(self) -> None:
        """Let every run report, and find the rate that the machine carries."""
        for workload in {cell.workload.first_run: cell.workload for cell in CELLS}.values():
            self.send(workload, NEW_STEPS)
            self.n_active += workload.n_runs
        for _ in range(TOP_TRIES):
            sent, seconds = self.send(TOP.workload, TOP_STEPS)
            self.top_per_second = max(self.top_per_second, len(sent.acknowledged) / seconds)

    def add_idle_runs(self) -> None:
        """Add active runs that send nothing more."""
        self.send(IDLE_RUNS, NEW_STEPS)
        self.n_active += IDLE_RUNS.n_runs
        time.sleep(SETTLE_SECONDS)

    def sample(self, cell: LoadCell, *, seconds: float) -> LoadSample:
        """Return a sample of about as many seconds."""
        workload, per_second = cell.workload, cell.share * self.top_per_second
        n_steps = round(per_second * seconds / (workload.n_runs * workload.n_ranks))
        before, began, worked = self.meter.read(), time.perf_counter(), time.process_time()
        sent, sending = Sent(), math.inf
        with side_load(self.deployment.url, cell) as counts:
            if cell.share:
                pace = None if cell.is_closed_loop else per_second
                sent, sending = self.send(workload, max(n_steps, 1), per_second=pace)
            else:
                time.sleep(seconds)
        worked = time.process_time() - worked
        elapsed = time.perf_counter() - began
        used = {station: total - before[station] for station, total in self.meter.read().items()}
        used[Station.NETWORK] = len(sent.acknowledged) * _body_bytes(workload)
        return LoadSample(
            deployment=self.kind.value,
            cell=cell.name,
            share=cell.share,
            is_held_out=cell.is_held_out,
            n_api=self.meter.n_api,
            n_connections=CONNECTIONS,
            sequences=workload.n_sequences,
            seconds=elapsed,
            rates={name.value: rate for name, rate in self._rates(sent, workload, counts, elapsed).items()},
            used={station.value: total / elapsed for station, total in used.items()},
            per_second=len(sent.acknowledged) / sending,
            mean_ms=fmean(sent.seconds) * 1000 if sent.seconds else None,
            p99_ms=sent.quantile_ms(0.99) if sent.seconds else None,
            sender_cores=worked / elapsed,
        )

    def _rates(self, sent: Sent, workload: Workload, counts: list[int], elapsed: float) -> Mapping[Activity, float]:
        n_reports, n_heartbeats, n_scrapes = len(sent.acknowledged), *counts
        per_elapsed = {
            Activity.REPORT: n_reports,
            Activity.SEQUENCE: n_reports * workload.n_sequences,
            Activity.BATCH: n_reports / workload.n_ranks,
            Activity.HEARTBEAT: n_heartbeats,
            Activity.SCRAPED_RUN: n_scrapes * min(self.n_active, SCRAPED_RUNS),
        }
        rates = {activity: count / elapsed for activity, count in per_elapsed.items()}
        return rates | {Activity.RUN: float(self.n_active)}


def measure(
    kind: DeploymentKind,
    *,
    n_api: int,
    rounds: int,
    seconds: float,
    progress: Callable[[str], None],
) -> Iterator[LoadSample]:
    """Yield samples of every cell in turn, round after round; idle runs join after the first half of the rounds."""
    with tempfile.TemporaryDirectory() as folder, _started(kind, Path(folder), n_api=n_api) as deployment:
        meter = EmbeddedMeter(deployment) if kind is DeploymentKind.EMBEDDED else FleetMeter(deployment)
        measured = MeasuredDeployment(kind, deployment, meter)
        measured.warm_up()
        for number in range(rounds):
            if number == rounds // 2:
                measured.add_idle_runs()
            for cell in CELLS:
                sample = measured.sample(cell, seconds=seconds)
                used = " ".join(f"{name}={value:.3g}" for name, value in sample.used.items())
                progress(f"{kind.value} x{n_api} {cell.name} {cell.share:g}: {sample.per_second:.0f}/s {used}")
                yield sample


def _started(kind: DeploymentKind, folder: Path, *, n_api: int) -> AbstractContextManager[Deployment]:
    if kind is DeploymentKind.EMBEDDED:
        return embedded(folder)
    return fleet(folder, replicas=n_api, is_in_memory=False)


def _body_bytes(workload: Workload) -> float:
    return fmean(len(workload.report(0, step=step, rank=0)) for step in range(CONTENTS))
