"""python -m trmon_research.language: train the models, train runs of them, and judge the stored runs."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(help=__doc__, add_completion=False, no_args_is_help=True)
BUILD = Path("build/language")
Folder = Annotated[Path, typer.Option(help="Where an interrupted training continues from.")]


class KindName(str, Enum):
    """Which of the two models."""

    DENSE = "dense"
    MOE = "moe"


@app.command()
def tokenizer() -> None:
    """Make the byte-pair encodings of the text, and the prompts."""
    from trmon_research.language import text

    text.DATA.mkdir(parents=True, exist_ok=True)
    text.train_tokenizer().save(str(text.TOKENIZER))
    text.PROMPTS.write_text(json.dumps(text.find_prompts(), indent=0) + "\n")


@app.command()
def model(kind: KindName, folder: Folder = BUILD) -> None:
    """Train a model on the text, an hour of a core, and store its weights."""
    from trmon_research.language import models

    models.train(kind.value, folder)


@app.command()
def run(
    names: Annotated[
        list[str] | None, typer.Argument(help="Runs; default: all that are not stored, one by one.")
    ] = None,
    folder: Annotated[Path | None, typer.Option(help="Where it trains; default: a folder that is deleted.")] = None,
) -> None:
    """Train a run from the stored weights, some 20 minutes of a core, and store what its client reported."""
    from trmon_research.language.plans import plans
    from trmon_research.language.stored import archive

    every = {plan.name: plan for plan in plans()}
    for name in names or [name for name in every if not archive(name).exists()]:
        if name not in every:
            raise typer.BadParameter(f"{name!r} must be one of {', '.join(every)}")
        with tempfile.TemporaryDirectory() as own:
            # A process each: trainers leave threads and memory behind.
            command = [sys.executable, "-m", "trmon_research.language.training", name, str(folder or own)]
            subprocess.run(command, check=True)


@app.command()
def unpack(name: str, folder: Path) -> None:
    """Write what is stored of a run: `FOLDER/spool` for `trmon ingest`, `FOLDER/tokens` for `trmon replay`."""
    from trmon_research.language import stored

    stored.unpack(name, folder)


@app.command()
def judge(
    sealed: Annotated[bool, typer.Option(help="And the half that no rule was corrected on; look at it once.")] = False,
) -> None:
    """Judge the stored runs by the service; print figures, what the risk foretold, a line a run, and levels."""
    from trmon_research.language import judged

    halves = {"open half": list(judged.judged_runs(sealed=False))}
    if sealed:
        halves["sealed half"] = list(judged.judged_runs(sealed=True))
    runs = [run for half in halves.values() for run in half]
    for lines in (*judged.half_tables(halves), judged.run_table(runs), judged.level_table(runs)):
        typer.echo("\n".join(["", *lines]))


@app.command("tokens")
def token_table() -> None:
    """Print what the tokens of the models are like: certainty, entropies, log-probs that are exactly 0."""
    from trmon_research.language import models

    typer.echo("\n".join(models.token_table()))


if __name__ == "__main__":
    app()
