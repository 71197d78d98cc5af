"""The commands of the benchmark of capacity."""

from __future__ import annotations

import datetime
import os
import platform
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.console import Console

import trmon.domain.capacity
from benchmarks.capacity.comparison import compared_loads
from benchmarks.capacity.fitting import fitted_file
from benchmarks.capacity.load_sample import SAMPLES, SampleFile, read_samples, write_samples
from benchmarks.capacity.measuring import measure
from benchmarks.capacity.plot import draw
from benchmarks.capacity.report import capacity_page
from benchmarks.load.shutdown import unwind_on_sigterm
from tests.fixtures.postgres import Postgres
from trmon.cli.machine_speed import calibration_ms
from trmon.domain.capacity.architecture import DeploymentKind
from trmon.domain.capacity.demand_file import ReferenceMachine

DOCS = Path(__file__).parents[2] / "docs"
DEMANDS = Path(trmon.domain.capacity.__path__[0]) / "demands.json"

app = typer.Typer(add_completion=False, help="The model of capacity: measure loads, fit demands, predict and compare.")
console = Console(stderr=True)
DEPLOYMENTS = ((DeploymentKind.EMBEDDED, 1), (DeploymentKind.FLEET, 1), (DeploymentKind.FLEET, 3))


@app.command(name="measure")
def measure_command(
    output: Path = SAMPLES,
    rounds: Annotated[int, typer.Option(help="How often each load is measured.")] = 4,
    seconds: Annotated[float, typer.Option(help="About how long.")] = 4.0,
) -> None:
    """Measure every load on an embedded service, a fleet and a fleet of three API processes, and store the samples."""
    unwind_on_sigterm()
    machine = _machine()
    samples = [
        sample
        for kind, n_api in DEPLOYMENTS
        for sample in measure(kind, n_api=n_api, rounds=rounds, seconds=seconds, progress=console.print)
    ]
    file = SampleFile(
        machine=machine,
        measured_at=datetime.datetime.now(datetime.timezone.utc).date().isoformat(),
        load_average=os.getloadavg()[2],
        samples=samples,
    )
    write_samples(file, output)


@app.command(name="report")
def report_command(samples: Path = SAMPLES) -> None:
    """Fit the demands that the package ships, compare predictions, and write docs/capacity.md with its figure."""
    file = read_samples(samples)
    demands = fitted_file(file)
    DEMANDS.write_bytes(msgspec.json.format(msgspec.json.encode(demands)) + b"\n")
    (DOCS / "capacity.md").write_text(capacity_page(file, demands))
    draw(list(compared_loads(file.samples, demands)), demands, DOCS / "capacity.svg")


def _machine() -> ReferenceMachine:
    with Postgres() as postgres:
        [(database,)] = postgres.execute("SHOW server_version")
    return ReferenceMachine(
        cpu=_cpu(),
        cores=len(os.sched_getaffinity(0)),
        python=platform.python_version(),
        database=f"PostgreSQL {database.split()[0]}",
        calibration_ms=round(calibration_ms(), 3),
    )


def _cpu() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
