"""An experiment from a sweep's runs to its folder, with a progress bar; it may be interrupted and repeated."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from trmon.cli.stored_runs import ray_cluster
from trmon.domain.errors import InvalidInput
from trmon_research.interventions.arms import ARMS
from trmon_research.interventions.pair_choice import choose_pairs
from trmon_research.interventions.pair_folder import PairFolder
from trmon_research.interventions.pair_record import PairSetup
from trmon_research.interventions.pair_summary import arms_table, summarise, trigger_line
from trmon_research.interventions.paired_run import run_pair
from trmon_research.interventions.trigger import Trigger
from trmon_research.sweep.optional_packages import check_packages
from trmon_research.sweep.progress_bar import progress_bar
from trmon_research.sweep.ray_execution import run_on_ray
from trmon_research.sweep.sweep_folder import SweepFolder


@dataclass(frozen=True, slots=True, kw_only=True)
class InterventionChoices:
    """What an experiment runs: pairs of a sweep's runs, at most `limit` of each kind; on what.

    `arms` names some arms; empty: all.
    """

    folder: Path
    runs: Path
    trigger: Trigger
    arms: tuple[str, ...] = ()
    healthy_at: int = 300
    limit: int | None = None
    address: str | None = None
    workers: int | None = None


def run_interventions(choices: InterventionChoices, *, console: Console) -> None:
    """Run the pairs that the folder lacks, and print the summary. Errors: NotReady, SweepError, InvalidInput."""
    check_packages()
    if unknown := [arm for arm in choices.arms if arm not in ARMS]:
        raise InvalidInput("--arm", f"{unknown[0]!r} must be one of {', '.join(ARMS)}")
    setup = PairSetup(trigger=choices.trigger, arms=choices.arms or ARMS, healthy_at=choices.healthy_at)
    plans = choose_pairs(SweepFolder(choices.runs).records(), setup, limit=choices.limit)
    if not plans:
        raise InvalidInput("--runs", f"{choices.runs} has no run that collapsed; give the folder of a sweep")
    folder = PairFolder(choices.folder)
    missing = folder.missing(plans)
    if missing:
        with ray_cluster(address=choices.address, workers=choices.workers) as ray, progress_bar(console) as progress:
            bar = progress.add_task("pairs", total=len(plans), completed=len(plans) - len(missing))
            for record in run_on_ray(ray, missing, run=run_pair):
                folder.store(record)
                progress.advance(bar)
    records = list(folder.records())
    console.print(trigger_line(records))
    console.print(arms_table(summarise(records)))
