"""The commands `record` and `table`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.progress import track

from trmon_research.detection.markdown_table import markdown_tables
from trmon_research.detection.record import LAB, SUMS, names_of, record_all
from trmon_research.detection.recorded_run import CACHE, RecordedCourse
from trmon_research.detection.replay_cache import outcomes_of

app = typer.Typer(help=__doc__, add_completion=False)
Cache = Annotated[Path, typer.Option(help="Folder of the recordings.")]
Testbed = Annotated[str, typer.Option(help=f"`{SUMS}` or `{LAB}`.")]
Runs = Annotated[int, typer.Option(help="Runs of each fault.")]
Healthy = Annotated[int | None, typer.Option(help="Runs of each healthy kind; default: as many as of a fault.")]


@app.command()
def record(
    *,
    runs: Runs = 20,
    healthy: Healthy = None,
    testbed: Testbed = SUMS,
    steps: Annotated[int, typer.Option(help="Steps of each run.")] = 300,
    jobs: Annotated[int, typer.Option(help="Processes.")] = 2,
    cache: Cache = CACHE,
) -> None:
    """Record runs that are not recorded yet; may be interrupted and repeated."""
    cache.mkdir(parents=True, exist_ok=True)
    names = list(names_of(runs, runs if healthy is None else healthy, testbed=testbed))
    for _ in track(record_all(names, cache, n_steps=steps, jobs=jobs), description=testbed, total=len(names)):
        pass


@app.command()
def table(
    *,
    runs: Runs = 20,
    healthy: Healthy = None,
    testbed: Annotated[str | None, typer.Option(help=f"`{SUMS}` or `{LAB}`; default: both.")] = None,
    jobs: Annotated[int, typer.Option(help="Processes.")] = 2,
    cache: Cache = CACHE,
) -> None:
    """Replay the recordings that are there, unless this code has replayed them before, and print the tables."""
    n_healthy = runs if healthy is None else healthy
    names = [name for bed in (LAB, SUMS) if testbed in (None, bed) for name in names_of(runs, n_healthy, testbed=bed)]
    courses = [course for name in names if (course := RecordedCourse.open(name, cache)) is not None]
    outcomes = list(track(outcomes_of(courses, jobs=jobs), description="replay", total=len(courses)))
    outcomes.sort(key=lambda outcome: names.index(outcome.name))
    for line in markdown_tables(outcomes):
        typer.echo(line)
