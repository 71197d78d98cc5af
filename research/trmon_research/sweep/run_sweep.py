"""A sweep from its plan to its folder, with a progress bar; it may be interrupted and repeated."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from trmon.cli.stored_runs import ray_cluster
from trmon_research.sweep.optional_packages import check_packages
from trmon_research.sweep.progress_bar import progress_bar
from trmon_research.sweep.ray_execution import run_on_ray
from trmon_research.sweep.sweep_folder import SweepFolder
from trmon_research.sweep.sweep_plan import plan_sweep
from trmon_research.sweep.sweep_summary import summary_table
from trmon_research.sweep.swept_run import sweep_run


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
    check_packages()
    plan = plan_sweep(choices.n_configurations, seed=choices.seed, n_updates=choices.n_updates, n_seeds=choices.n_seeds)
    folder = SweepFolder(choices.folder)
    folder.extend(plan)
    missing = folder.missing(plan)
    try:
        if missing:
            with (
                ray_cluster(address=choices.address, workers=choices.workers) as ray,
                progress_bar(console) as progress,
            ):
                bar = progress.add_task("runs", total=len(plan), completed=len(plan) - len(missing))
                for run in run_on_ray(ray, missing, run=sweep_run):
                    folder.store(run)
                    progress.advance(bar)
    finally:
        folder.finish()
    console.print(summary_table(folder.records()))
