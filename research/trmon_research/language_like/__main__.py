"""python -m trmon_research.language_like: simulate runs like those of language models, and judge them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import track

from trmon_research.judgement.folded import FoldedRun
from trmon_research.language_like.judged import fold_plan, judgement_of
from trmon_research.language_like.plans import Plan, plans
from trmon_research.language_like.runs import CACHE, Simulated, path_of, store
from trmon_research.language_like.scoring import score

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


@app.command()
def judge(*, only: Only = "", seed: Seed = 0, cache: Cache = CACHE, spells: bool = False) -> None:
    """Judge the runs, which are simulated first where they are missing, and print the table of the figures."""
    found = {plan: fold_plan(plan, cache) for plan in track(_chosen(seed, only), description="runs")}
    typer.echo(score({plan: judgement_of(run) for plan, run in found.items()}))
    for plan, run in found.items() if spells else ():
        typer.echo(f"\n{plan.name}: {_spell_words(run)}")


def _spell_words(run: FoldedRun) -> str:
    return "; ".join(
        f"{spell.finding}.{spell.clause} {spell.severity.value} found in row {spell.trip}, since {spell.onset}"
        f"{'' if spell.end is None else f', ended in row {spell.end}'}"
        for spell in sorted(run.spells, key=lambda spell: spell.trip)
    )


def _chosen(seed: int, only: str) -> list[Plan]:
    found = [plan for plan in plans(seed) if only in plan.name]
    if not found:
        raise typer.BadParameter(f"no run has {only!r} in its name")
    return found


app()
