"""The commands of the benchmark of collapse."""

from __future__ import annotations

from pathlib import Path

import msgspec
import typer
from msgspec import structs
from rich.console import Console

import trmon.domain.collapse_risk
from trmon.domain.collapse_risk.risk_model import RiskModel
from trmon_research.collapse.report import FALSE_ALARMS, Benchmark, report_sections
from trmon_research.collapse.report_page import report_page
from trmon_research.collapse.stored_runs import RUNS, read_runs
from trmon_research.collapse.validation import fit_to, fit_to_moments, with_calibration
from trmon_research.sweep.sweep_plan import configuration_hash

REPORT = Path(__file__).parents[3] / "docs" / "collapse-benchmark.md"
MODEL = Path(trmon.domain.collapse_risk.__path__[0]) / "model.json"

app = typer.Typer(add_completion=False, help="The benchmark of collapse: what a predictor finds in the stored runs.")
console = Console(stderr=True)


@app.command()
def report(runs: Path = RUNS, output: Path = REPORT) -> None:
    """Write the report of the stored runs."""
    benchmark = Benchmark(read_runs(runs))
    sections = list(report_sections(benchmark, progress=console.print))
    output.write_text(report_page(benchmark.runs, sections))


@app.command()
def fit(runs: Path = RUNS, output: Path = MODEL, leave_out: Path | None = None) -> None:
    """Fit the model to all stored runs, calibrate it and its thresholds by held-out predictions, and write it.

    --leave-out names a folder of runs that the model must not see, such as those of an experiment.
    """
    left_out = {configuration_hash(run.config) for run in read_runs(leave_out)} if leave_out else set()
    benchmark = Benchmark([run for run in read_runs(runs) if configuration_hash(run.config) not in left_out])
    output.write_bytes(encoded(fitted(benchmark)))


def fitted(benchmark: Benchmark) -> RiskModel:
    """Return the model of all runs, whose thresholds are those that held-out predictions have."""
    runs, moments = benchmark.runs, benchmark.moments
    model = fit_to(runs, moments, benchmark.every_run)
    page_at, warn_at = (
        round(benchmark.alarms(benchmark.predicted, false_alarms=share).threshold, 3) for share in FALSE_ALARMS
    )
    fitted_on = {
        "command": "python -m trmon_research.collapse fit",
        "runs": len(runs),
        "collapses": sum(run.has_collapsed for run in runs),
        "moments": len(benchmark.shown),
    }
    model = with_calibration(model, fit_to_moments(benchmark.shown, benchmark.uncalibrated))
    return RiskModel(structs.replace(model.file, fitted_on=fitted_on, warn_at=warn_at, page_at=page_at))


def encoded(model: RiskModel) -> bytes:
    """Return the file of a model: one line for each tree and feature, so that a diff shows what changed."""
    fields = msgspec.to_builtins(model.file)
    lists = {name: fields.pop(name) for name in ("features", "trees")}
    lines = [f'"{name}":{msgspec.json.encode(value).decode()}' for name, value in fields.items()]
    for name, entries in lists.items():
        lines.append(f'"{name}":[\n' + ",\n".join(msgspec.json.encode(entry).decode() for entry in entries) + "\n]")
    return ("{" + ",\n".join(lines) + "}\n").encode()
