"""Sweeps of the lab, interventions on their runs, and backtests over them: python -m trmon_research COMMAND."""

from __future__ import annotations

from contextlib import ExitStack
from enum import Enum
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from trmon.cli.backtest import (
    BUILTIN,
    Against,
    AsJson,
    Backtest,
    ModelFile,
    Output,
    Policies,
    Rules,
    Runs,
    backtest_writer,
    write_backtest,
)
from trmon.cli.command import console, plain_errors
from trmon.domain.errors import InvalidInput

app = typer.Typer(help=__doc__, add_completion=False, no_args_is_help=True)
Workers = Annotated[int | None, typer.Option(min=1, help="Runs at once on this machine; default: a run a core.")]
Address = Annotated[str | None, typer.Option(help="Address of a Ray cluster; default: this machine.")]


@app.command()
def config(
    mechanism: Annotated[str, typer.Argument(help="What goes wrong; an unknown name lists them.")],
    draw: Annotated[int, typer.Option(min=0, help="Which of its drawn configurations.")] = 0,
    seed: Annotated[int, typer.Option(help="Seed of the drawn configurations.")] = 0,
    updates: Annotated[int, typer.Option(min=1, help="Updates to train.")] = 800,
) -> None:
    """Print one configuration of a sweep, which the command `train` trains."""
    with plain_errors():
        from trmon_research.sweep.sweep_plan import MECHANISMS, configurations_of

        if mechanism not in MECHANISMS:
            raise InvalidInput("MECHANISM", f"{mechanism!r} must be one of {', '.join(MECHANISMS)}")
        chosen = configurations_of(mechanism, seed=seed, n_updates=updates, n=draw + 1)[draw]
        typer.echo(msgspec.json.encode(chosen).decode())


@app.command()
def train(
    file: Annotated[Path, typer.Argument(help="A configuration as JSON.", exists=True, dir_okay=False)],
    project: Annotated[str, typer.Option(help="Project of the run.")] = "lab",
    run: Annotated[str | None, typer.Option(help="Name of the run; default: made of its configuration.")] = None,
    url: Annotated[str | None, typer.Option(help="URL of the service; default: write a spool directory.")] = None,
) -> None:
    """Train one configuration, which reports to a running service."""
    with plain_errors():
        from trmon.lab.grpo.grpo_trainer import train_experiment_watched
        from trmon_research.testbed import read_config, train_experiment

        chosen = read_config(file)
        for outcome in train_experiment_watched(chosen, url=url, project=project, name=run, train=train_experiment):
            typer.echo(f"step {outcome.update} reward {outcome.reward:.3f} exact {outcome.exact:.3f}")


@app.command()
def sweep(
    folder: Annotated[Path, typer.Argument(help="Folder of the runs and their manifest; a known one is continued.")],
    runs: Annotated[int, typer.Option(min=1, help="Configurations to draw.")] = 240,
    updates: Annotated[int, typer.Option(min=1, help="Updates of each run.")] = 800,
    seed: Annotated[int, typer.Option(help="Seed of the drawn configurations.")] = 0,
    seeds: Annotated[int, typer.Option(min=1, help="Runs of each configuration, with different seeds.")] = 1,
    workers: Workers = None,
    address: Address = None,
) -> None:
    """Train many configurations over Ray, store a labelled parquet file of each, and print how many collapsed."""
    with plain_errors():
        from trmon_research.sweep.run_sweep import SweepChoices, run_sweep

        choices = SweepChoices(
            folder=folder,
            n_configurations=runs,
            n_updates=updates,
            seed=seed,
            n_seeds=seeds,
            address=address,
            workers=workers,
        )
        run_sweep(choices, console=console())


class TriggerName(str, Enum):
    """What the owner of a run acts on."""

    RISK = "risk"
    DECLINE = "decline"


@app.command()
def intervene(
    folder: Annotated[Path, typer.Argument(help="Folder of the pairs; a known one is continued.")],
    runs: Annotated[Path, typer.Option(help="Folder of the sweep whose configurations are run.")],
    trigger: Annotated[
        TriggerName, typer.Option(help="Act when collapse_risk is high, or when reward or gradients show damage.")
    ] = TriggerName.RISK,
    threshold: Annotated[float, typer.Option(min=0, max=1, help="Of the trigger risk: the risk to exceed.")] = 0.5,
    for_steps: Annotated[int, typer.Option(min=1, help="Of the trigger risk: for so many steps in a row.")] = 3,
    model: Annotated[
        Path | None,
        typer.Option(exists=True, dir_okay=False, help="Of the trigger risk: a model; default: the shipped one."),
    ] = None,
    arm: Annotated[list[str] | None, typer.Option(help="An arm to run, repeatable; default: all.")] = None,
    healthy_at: Annotated[int, typer.Option(min=1, help="Update at which healthy runs are interrupted.")] = 300,
    limit: Annotated[int | None, typer.Option(min=1, help="Pairs of runs that collapse, and of others.")] = None,
    workers: Workers = None,
    address: Address = None,
) -> None:
    """Repeat runs of a sweep up to a trigger, go on in several ways from there, and print what each one saved."""
    with plain_errors():
        from trmon_research.interventions.run_interventions import InterventionChoices, run_interventions
        from trmon_research.interventions.trigger import DeclineTrigger, SignalTrigger

        path = None if model is None else str(model.absolute())
        chosen = SignalTrigger(threshold=threshold, for_steps=for_steps, model=path)
        choices = InterventionChoices(
            folder=folder,
            runs=runs,
            trigger=chosen if trigger is TriggerName.RISK else DeclineTrigger(),
            arms=tuple(arm or ()),
            healthy_at=healthy_at,
            limit=limit,
            address=address,
            workers=workers,
        )
        run_interventions(choices, console=console())


@app.command()
def backtest(
    folder: Annotated[Path, typer.Argument(help="Folder of a sweep.")],
    rules: Rules = BUILTIN,
    against: Against = None,
    policy: Policies = None,
    model: ModelFile = None,
    run: Runs = None,
    output: Output = None,
    as_json: AsJson = False,
) -> None:
    """Print what rules would have raised over the runs of a sweep, as `trmon backtest` does over stored runs."""
    with plain_errors(), ExitStack() as stack:
        from trmon_research.sweep.swept_backtest import backtest_swept
        from trmon_research.sweep.swept_history import swept_histories

        chosen = Backtest.of(rules, against, policies=policy, model=model)
        writer = backtest_writer(stack, chosen, output=output, as_json=as_json)
        results = (backtest_swept(swept, chosen) for swept in swept_histories(folder, runs=run or []))
        write_backtest(results, writer)


if __name__ == "__main__":
    app(prog_name="python -m trmon_research")
