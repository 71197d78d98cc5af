"""`trmon demo` and `trmon lab`: train small runs with trmon attached; all need torch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from trmon.cli.command import DataDir, console, plain_errors
from trmon.domain.errors import InvalidInput, NotReady

DEMO_SEED = 5
"""A seed whose reward falls for good between steps 90 and 115, however a CPU rounds; `find_collapse` needs 100 more."""
LAB_SUMMARY = "Train a small policy by reinforcement learning, which reports to a running service."
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
            raise InvalidInput("--run", "name the run, or give a subcommand: train")
        with _needs_torch():
            from trmon.lab.commands import lab_config_of, train_watched
        config = lab_config_of(inject, seed=seed, n_steps=steps)
        for result in train_watched(config, url=url, project=project, name=run):
            typer.echo(f"step {result.step} reward {result.reward:.3f} exact {result.exact:.3f}")


@lab.command("train")
def train(
    config: Annotated[Path, typer.Option(help="A configuration as JSON.")],
    project: Annotated[str, typer.Option(help="Project of the run.")] = "lab",
    run: Annotated[str | None, typer.Option(help="Name of the run; default: made of its configuration.")] = None,
    url: Annotated[str | None, typer.Option(help="URL of the service; default: write a spool directory.")] = None,
    device: Annotated[str, typer.Option(help="What torch computes on, such as cuda.")] = "cpu",
) -> None:
    """Train one configuration, and report to a running service."""
    with plain_errors():
        with _needs_torch():
            from trmon.lab.commands import read_config, train_experiment_watched
        for outcome in train_experiment_watched(read_config(config), url=url, project=project, name=run, device=device):
            typer.echo(
                f"update {outcome.update} reward {outcome.reward:.3f} evaluated {outcome.evaluated.reward:.3f} "
                f"grad_norm {outcome.grad_norm:.3f}"
            )


@contextmanager
def _needs_torch() -> Iterator[None]:
    """Import from the lab inside this context. Errors: NotReady if torch is not installed."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise NotReady(f"the lab needs {error.name}; pip install 'trmon[lab]' brings it") from error
