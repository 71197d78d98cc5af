"""Sections of the report that other programs measure: other monitors on the same runs, and paired interventions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean

from trmon_research.collapse.markdown import table
from trmon_research.collapse.rivals.comparison_table import comparison_table
from trmon_research.collapse.rivals.monitor_alerts import MonitorAlert, read_monitor_alerts
from trmon_research.collapse.stored_runs import StoredRun
from trmon_research.interventions.pair_folder import PairFolder
from trmon_research.interventions.pair_summary import ArmSummary, SavedRuns, summarise, trigger_line

FOLDER = Path(__file__).parents[2] / "data"
RIVALS, PAIRS = FOLDER / "rivals.json", FOLDER / "pairs"


def other_monitors(
    runs: Sequence[StoredRun], told: Mapping[str, Sequence[MonitorAlert]], *, path: Path = RIVALS
) -> list[str]:
    """Return the comparison with other monitors on the runs that were replayed through all of them."""
    found = read_monitor_alerts(path)
    replayed = set.intersection(*(set(record.runs) for record in found.monitors.values()))
    onsets = {
        run.name: run.onset for run in runs if run.name in replayed and (run.onset is not None or run.was_never_hurt)
    }
    return comparison_table(found, {name: tuple(told[name]) for name in onsets}, onsets)


def interventions(*, folder: Path = PAIRS) -> list[str]:
    """Return what each intervention saved and cost in the stored pairs."""
    records = list(PairFolder(folder).records())
    head = ("arm", "lost", "saved of untouched's", "saved of placebo's", "healthy: reward", "healthy: lost")
    return [trigger_line(records), "", *table(head, [_row(summary) for summary in summarise(records)])]


def _row(summary: ArmSummary) -> list[str]:
    healthy = summary.healthy_rewards
    return [
        summary.arm.replace("_", " "),
        f"{summary.lost} of {summary.triggered}",
        _share(summary.saved_of_untouched),
        _share(summary.saved_of_placebo),
        f"{fmean(healthy) - 1:+.1%}" if healthy else "-",
        f"{summary.healthy_lost} of {len(healthy)}",
    ]


def _share(saved: SavedRuns) -> str:
    return f"{saved.saved} of {saved.of}"
