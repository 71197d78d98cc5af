"""python -m trmon_research.judgement: the figures of the judge, a command each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import track

from trmon_research.collapse.markdown import table
from trmon_research.collapse.stored_runs import RUNS
from trmon_research.judgement import lab_runs, real_runs
from trmon_research.judgement.changes import Verdict, changes
from trmon_research.judgement.sparse_logs import FINDING, sparse_logs

app = typer.Typer(help=__doc__, add_completion=False)


@app.command("real-runs")
def real(
    folder: Annotated[
        Path, typer.Argument(help="A folder with manifest.jsonl and runs/ID.jsonl, or of another format.")
    ],
) -> None:
    """Judge real runs that an expert has read; print the figures, the runs judged wrongly, and each clause's count."""
    runs = list(track(real_runs.real_runs(folder), description="runs"))
    for half in sorted({run.reading.half for run in runs}):
        found = real_runs.figures([run for run in runs if run.reading.half == half])
        if half:
            typer.echo(f"{half} half\n")
        # What is wanted was said of the runs that no half was made of.
        _print_figures((name, count, of, "" if half else wanted) for name, count, of, wanted in found)
    for line in real_runs.wrong_runs(runs):
        typer.echo(line)
    rows = [[f"`{key}`", str(right), str(wrong)] for key, (right, wrong) in real_runs.clause_counts(runs).items()]
    typer.echo("\n".join(["", *table(["clause", "right", "wrong"], rows), ""]))
    typer.echo("\n".join(changes("real", {run.reading.id: Verdict.of(run.found.state) for run in runs})))


@app.command("lab-runs")
def lab(runs: Path = RUNS) -> None:
    """Judge the stored runs of the lab; print which findings were told of those never hurt, and which of the others."""
    found = list(track(lab_runs.lab_runs(runs), description="runs"))
    unhurt = [run for run in found if run.stored.was_never_hurt]
    others = [run for run in found if not run.stored.was_never_hurt]
    for title, of in (("never hurt", unhurt), ("hurt or stopped", others)):
        told = Counter(
            (key, severity)
            for run in of
            for key, severity in {
                (f"{told.spell.finding}.{told.spell.clause}", told.severity.value) for told in run.told
            }
        )
        rows = [[f"`{key}`", severity, str(n)] for (key, severity), n in told.most_common()]
        typer.echo("\n".join(["", *table([f"told of {len(of)} runs {title}", "severity", "runs"], rows)]))
    told_of = {name: [bool(run.told) for run in unhurt if run.stored.mechanism == name] for name in _mechanisms(unhurt)}
    rows = [[name.replace("_", " "), str(len(told)), str(sum(told))] for name, told in told_of.items()]
    typer.echo("\n".join(["", *table(["mechanism", "never hurt", "warned or paged"], rows)]))
    typer.echo("\n".join(["", *changes("lab", {run.stored.name: run.verdict for run in found})]))


@app.command("sparse-logs")
def sparse() -> None:
    """Judge one simulated collapse that is logged every step, every 5 and every 10."""
    rows = [
        [f"every {log.every}", log.told_as or "-", _known(log.rows_to_first), _known(log.rows_to_fall), str(log.early)]
        for log in sparse_logs()
    ]
    head = ["logged", "told first", "rows to it", f"rows to {FINDING}", "messages before the onset"]
    typer.echo("\n".join(table(head, rows)))


def _mechanisms(runs: Iterable[lab_runs.LabRun]) -> list[str]:
    return sorted({run.stored.mechanism for run in runs})


def _known(number: int | None) -> str:
    return "not found" if number is None else str(number)


def _print_figures(figures: Iterable[tuple[str, int, int, str]]) -> None:
    rows = [[name, str(count), str(of), wanted] for name, count, of, wanted in figures]
    typer.echo("\n".join([*table(["figure", "count", "of", "wanted"], rows), ""]))


app()
