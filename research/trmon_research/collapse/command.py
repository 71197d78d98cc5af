"""The commands of the benchmark of collapse."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec
import numpy as np
import typer
from msgspec import structs
from rich.console import Console

import trmon.domain.collapse_risk
from trmon.domain.collapse_risk.fleet_calibration import PAGED, WARNED
from trmon.domain.collapse_risk.risk_model import RiskModel
from trmon_research.collapse.fitting import fit_calibration
from trmon_research.collapse.markdown import table
from trmon_research.collapse.real_runs import coverage_rows
from trmon_research.collapse.report import Benchmark, page, shown
from trmon_research.collapse.scores import threshold_at
from trmon_research.collapse.stored_runs import RUNS, read_runs
from trmon_research.collapse.told import TOLD, read_told, tell, write_told
from trmon_research.collapse.validation import fit_to, with_calibration

REPORT = Path(__file__).parents[3] / "docs" / "collapse-benchmark.md"
MODEL = Path(trmon.domain.collapse_risk.__path__[0]) / "model.json"
Folder = Annotated[Path, typer.Argument(exists=True, file_okay=False)]

app = typer.Typer(add_completion=False, help="The benchmark of collapse: what a predictor finds in the stored runs.")
console = Console(stderr=True)


@app.command()
def report(runs: Path = RUNS, output: Path = REPORT, told: Path = TOLD, quick: bool = False) -> None:
    """Write the page of the stored runs; where the rules or the model have changed, replay the runs first.

    --quick leaves out what takes long, other predictors and the replay; the page says so.
    """
    benchmark = Benchmark(read_runs(runs))
    found = read_told(told)
    if found is None and not quick:
        found = write_told(tell(benchmark.runs, benchmark.held_out, folder=runs, progress=console.print), told)
    output.write_text(page(benchmark, None if found is None else found.runs, console.print, is_quick=quick))


@app.command()
def fit(runs: Path = RUNS, output: Path = MODEL, leave_out: Path | None = None) -> None:
    """Fit the model to all stored runs, calibrate it and its thresholds by held-out predictions, and write it.

    --leave-out names a folder of runs that the model must not see, such as those of an experiment.
    """
    left_out = {run.configuration for run in read_runs(leave_out)} if leave_out else set()
    benchmark = Benchmark([run for run in read_runs(runs) if run.configuration not in left_out])
    output.write_bytes(encoded(fitted(benchmark)))


@app.command("real-runs")
def real_runs(folder: Folder) -> None:
    """Print where the model speaks, and whom it warns, on logs that an expert has read."""
    typer.echo(
        "\n".join(table(["verdict", "logs", "rows", "spoken", "highest risk", "warned"], list(coverage_rows(folder))))
    )


def fitted(benchmark: Benchmark) -> RiskModel:
    """Return the model of all runs, with the calibration and the thresholds that held-out predictions have."""
    runs, moments, held_out = benchmark.runs, shown(benchmark.moments), benchmark.held_out
    model = fit_to(runs, benchmark.moments, np.ones(len(runs), bool))
    spoken = moments.where(moments.values(held_out.spoken).astype(bool))
    model = with_calibration(model, fit_calibration(spoken.values(held_out.raw), spoken.falls))
    highest = [values.max() for values, run in zip(held_out.calibrated, runs, strict=True) if run.was_never_hurt]
    warn_at, page_at = (round(threshold_at(highest, alarmed=share), 3) for share in (WARNED, PAGED))
    fitted_on = {
        "command": "python -m trmon_research.collapse fit",
        "runs": len(runs),
        "collapses": sum(run.onset is not None for run in runs),
        "moments": len(moments),
    }
    return RiskModel(structs.replace(model.file, fitted_on=fitted_on, warn_at=warn_at, page_at=page_at))


def encoded(model: RiskModel) -> bytes:
    """Return the file of a model: one line for each tree and feature, so that a diff shows what changed."""
    fields = msgspec.to_builtins(model.file)
    fields.pop("fleet")
    lists = {name: fields.pop(name) for name in ("features", "trees")}
    lines = [f'"{name}":{msgspec.json.encode(value).decode()}' for name, value in fields.items()]
    for name, entries in lists.items():
        lines.append(f'"{name}":[\n' + ",\n".join(msgspec.json.encode(entry).decode() for entry in entries) + "\n]")
    return ("{" + ",\n".join(lines) + "}\n").encode()
