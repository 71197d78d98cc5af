"""A sweep from its plan to its folder, with a progress bar; it may be interrupted and repeated."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from trmon.domain.model.errors import NotReady
from trmon.lab.sweep.ray_execution import ray_cluster, run_on_ray
from trmon.lab.sweep.sweep_folder import SweepFolder
from trmon.lab.sweep.sweep_plan import plan_sweep
from trmon.lab.sweep.sweep_summary import summary_table

PACKAGES = ("pyarrow", "ray")
"""Optional packages that every sweep needs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepChoices:
    """What a sweep runs: n_configurations drawn from a seed, each with n_seeds seeds; where, and on what."""

    folder: Path
    n_configurations: int
    n_updates: int
    seed: int = 0
    n_seeds: int = 1
    address: str | None = None
    workers: int | None = None


def run_sweep(choices: SweepChoices, *, console: Console) -> None:
    """Run what the folder lacks of the plan, and print the summary. Errors: NotReady, SweepError, InvalidInput."""
    _check_packages()
    plan = plan_sweep(choices.n_configurations, seed=choices.seed, n_updates=choices.n_updates, n_seeds=choices.n_seeds)
    folder = SweepFolder(choices.folder)
    folder.extend(plan)
    missing = folder.missing(plan)
    try:
        if missing:
            with ray_cluster(address=choices.address, workers=choices.workers) as ray, _progress(console) as progress:
                bar = progress.add_task("runs", total=len(plan), completed=len(plan) - len(missing))
                for run in run_on_ray(ray, missing):
                    folder.store(run)
                    progress.advance(bar)
    finally:
        folder.finish()
    console.print(summary_table(folder.records()))


def _check_packages() -> None:
    try:
        for name in PACKAGES:
            import_module(name)
    except ModuleNotFoundError as error:
        raise NotReady(f"a sweep needs {error.name}; pip install 'trmon[lab,ray]' brings it") from error


def _progress(console: Console) -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    return Progress(*columns, TimeElapsedColumn(), TimeRemainingColumn(), console=console)
