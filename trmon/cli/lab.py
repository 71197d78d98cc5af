"""`trmon demo` and `trmon lab`: train small runs with trmon attached; both need torch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from trmon.cli.command import DataDir, console, plain_errors
from trmon.domain.errors import InvalidInput, needs_package

if TYPE_CHECKING:
    from trmon.lab.grpo.injections import Injection

DEMO_SEED = 5
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
        with needs_package("lab", said="the lab needs"):
            from trmon.lab.demo.processes import demo_trainings
            from trmon.lab.demo.run import run_demo
        trainings = demo_trainings(_injection(inject), seed=seed, n_steps=steps)
        if not run_demo(trainings, keep=keep, data_dir=data_dir, console=console()):
            raise typer.Exit(1)


def lab_command(
    inject: Annotated[str | None, typer.Option(help=f"{INJECTIONS} Default: nothing.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of the run.")] = 0,
    steps: Annotated[int, typer.Option(min=1, help="Steps to train.")] = 240,
    project: Annotated[str, typer.Option(help="Project of the run.")] = "lab",
    run: Annotated[str | None, typer.Option(help="Name of the run; default: made of its configuration.")] = None,
    url: Annotated[str | None, typer.Option(help="URL of the service; default: write a spool directory.")] = None,
) -> None:
    """Train a small policy by reinforcement learning, which reports to a running service."""
    with plain_errors():
        with needs_package("lab", said="the lab needs"):
            from trmon.lab.grpo.grpo_trainer import train_experiment_watched
            from trmon.lab.grpo.injections import injected
        config = injected(None if inject is None else _injection(inject), seed=seed, n_steps=steps)
        for outcome in train_experiment_watched(config, url=url, project=project, name=run):
            typer.echo(f"step {outcome.update} reward {outcome.reward:.3f} exact {outcome.exact:.3f}")


def _injection(name: str) -> Injection:
    """Return the injection with a name. Errors: InvalidInput."""
    from trmon.lab.grpo.injections import Injection

    try:
        return Injection(name)
    except ValueError as error:
        known = ", ".join(known.value for known in Injection)
        raise InvalidInput("--inject", f"{name!r} must be one of {known}") from error
