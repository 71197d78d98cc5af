"""`trmon demo` and `trmon lab`: train small runs with trmon attached; all need torch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from trmon.cli.command import DataDir, console, plain_errors
from trmon.domain.model.errors import InvalidInput, NotReady

DEMO_SEED = 5
"""A seed whose reward falls for good between steps 90 and 115, however a CPU rounds; `find_collapse` needs 100 more."""
LAB_SUMMARY = (
    "Train small policies by reinforcement learning: one that reports to a running service, a sweep of many, or runs "
    "with and without an intervention."
)
INJECTIONS = "What goes wrong: quantise, stale, router, pad, support, lr, temperature, reward, nan, entropy or length."


def demo_command(
    inject: Annotated[str, typer.Option(help=f"{INJECTIONS} In the ill run.")] = "stale",
    seed: Annotated[int, typer.Option(help="Seed of all runs.")] = DEMO_SEED,
    steps: Annotated[int, typer.Option(min=1, help="Steps of each run.")] = 240,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the service running so that you can explore.")] = False,
    data_dir: DataDir = None,
) -> None:
    """Train a healthy, a drifting and a collapsing run against a local service, and print what trmon reported."""
    with plain_errors():
        with _needs_torch():
            from trmon.lab.commands import DemoChoices, injection, run_demo
        choices = DemoChoices(injection(inject), seed=seed, n_steps=steps, keep=keep, data_dir=data_dir)
        if not run_demo(choices, console=console()):
            raise typer.Exit(1)


lab = typer.Typer(help=LAB_SUMMARY, invoke_without_command=True, add_completion=False)


@lab.callback()
def lab_command(
    context: typer.Context,
    run: Annotated[str | None, typer.Option(help="Name of the run; required without a subcommand.")] = None,
    project: Annotated[str, typer.Option(help="Project of the run.")] = "lab",
    url: Annotated[str | None, typer.Option(help="URL of the service; default: write a spool directory.")] = None,
    inject: Annotated[str | None, typer.Option(help=f"{INJECTIONS} Default: nothing.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of the run.")] = 0,
    steps: Annotated[int, typer.Option(min=1, help="Steps to train.")] = 240,
) -> None:
    """Train one small policy by reinforcement learning and report to a running service."""
    if context.invoked_subcommand is not None:
        return
    with plain_errors():
        if run is None:
            raise InvalidInput("--run", "name the run, or give a subcommand: train, sweep, intervene")
        with _needs_torch():
            from trmon.lab.commands import lab_config_of, train_watched
        config = lab_config_of(inject, seed=seed, n_steps=steps)
        for result in train_watched(config, url=url, project=project, name=run):
            typer.echo(f"step {result.step} reward {result.reward:.3f} exact {result.exact:.3f}")


@lab.command("train")
def train(
    mechanism: Annotated[str, typer.Option(help="What goes wrong; an unknown name lists them.")] = "healthy",
    draw: Annotated[int, typer.Option(min=0, help="Which drawn configuration of the mechanism to train.")] = 0,
    seed: Annotated[int, typer.Option(help="Seed of the drawn configurations.")] = 0,
    updates: Annotated[int, typer.Option(min=1, help="Updates to train.")] = 800,
    config: Annotated[Path | None, typer.Option(help="A configuration as JSON, in place of a drawn one.")] = None,
    project: Annotated[str, typer.Option(help="Project of the run.")] = "lab",
    run: Annotated[str | None, typer.Option(help="Name of the run; default: made of its configuration.")] = None,
    url: Annotated[str | None, typer.Option(help="URL of the service; default: write a spool directory.")] = None,
    device: Annotated[str, typer.Option(help="What torch computes on, such as cuda.")] = "cpu",
) -> None:
    """Train one configuration of a sweep, and report to a running service."""
    with plain_errors():
        with _needs_torch():
            from trmon.lab.commands import drawn_config, read_config, train_experiment_watched
        chosen = (
            drawn_config(mechanism, draw=draw, seed=seed, n_updates=updates) if config is None else read_config(config)
        )
        for outcome in train_experiment_watched(chosen, url=url, project=project, name=run, device=device):
            typer.echo(
                f"update {outcome.update} reward {outcome.reward:.3f} evaluated {outcome.evaluated.reward:.3f} "
                f"grad_norm {outcome.grad_norm:.3f}"
            )


@lab.command("sweep")
def sweep(
    folder: Annotated[Path, typer.Argument(help="Folder of the runs and their manifest; a known one is continued.")],
    runs: Annotated[int, typer.Option(min=1, help="Configurations to draw.")] = 240,
    updates: Annotated[int, typer.Option(min=1, help="Updates of each run.")] = 800,
    seed: Annotated[int, typer.Option(help="Seed of the drawn configurations.")] = 0,
    seeds: Annotated[int, typer.Option(min=1, help="Runs of each configuration, with different seeds.")] = 1,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Runs at once on this machine; default: a run a core.")
    ] = None,
    address: Annotated[str | None, typer.Option(help="Address of a Ray cluster; default: this machine.")] = None,
) -> None:
    """Train many configurations over Ray, store a labelled parquet file of each, and print how many collapsed."""
    with plain_errors():
        with _needs_torch():
            from trmon.lab.commands import SweepChoices, run_sweep
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


@lab.command("intervene")
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
    workers: Annotated[
        int | None, typer.Option(min=1, help="Pairs at once on this machine; default: a pair a core.")
    ] = None,
    address: Annotated[str | None, typer.Option(help="Address of a Ray cluster; default: this machine.")] = None,
) -> None:
    """Repeat runs of a sweep up to a trigger, go on in several ways from there, and print what each one saved."""
    with plain_errors():
        with _needs_torch():
            from trmon.lab.commands import InterventionChoices, chosen_trigger, run_interventions
        choices = InterventionChoices(
            folder=folder,
            runs=runs,
            trigger=chosen_trigger(trigger.value, threshold=threshold, for_steps=for_steps, model=model),
            arms=tuple(arm or ()),
            healthy_at=healthy_at,
            limit=limit,
            address=address,
            workers=workers,
        )
        run_interventions(choices, console=console())


@contextmanager
def _needs_torch() -> Iterator[None]:
    """Import from the lab inside this context. Errors: NotReady if torch is not installed."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise NotReady(f"the lab needs {error.name}; pip install 'trmon[lab]' brings it") from error
