"""python -m trmon_research.language_like: simulate runs like those of language models, and print their ground truth."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import track

from trmon_research.language_like.plans import Plan, plans
from trmon_research.language_like.runs import CACHE, Simulated, path_of, store

app = typer.Typer(help=__doc__, add_completion=False)
Only = Annotated[str, typer.Option(help="Only runs with this in their name.")]
Seed = Annotated[int, typer.Option(help="Another seed draws other onsets, engines and rewards of the same kinds.")]
Cache = Annotated[Path, typer.Option(help="Folder of the runs.")]


@app.command()
def make(*, only: Only = "", seed: Seed = 0, cache: Cache = CACHE, again: bool = False) -> None:
    """Simulate the runs that the folder lacks, or all of them again, and write their manifest beside them."""
    wanted = [plan for plan in _chosen(seed, only) if again or not path_of(plan, cache).exists()]
    for plan in track(wanted, description="runs"):
        store(plan, cache)
    lines = "".join(json.dumps(Simulated.of(plan).manifest()) + "\n" for plan in plans(seed))
    (cache / f"seed-{seed}" / "manifest.jsonl").write_text(lines)


@app.command()
def manifest(*, only: Only = "", seed: Seed = 0) -> None:
    """Print the ground truth of each run as JSON Lines."""
    for plan in _chosen(seed, only):
        typer.echo(json.dumps(Simulated.of(plan).manifest()))


def _chosen(seed: int, only: str) -> list[Plan]:
    found = [plan for plan in plans(seed) if only in plan.name]
    if not found:
        raise typer.BadParameter(f"no run has {only!r} in its name")
    return found


app()
