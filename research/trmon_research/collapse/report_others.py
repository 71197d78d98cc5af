"""Sections of the report that other programs measure: other monitors on the same runs, and paired interventions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

from trmon.domain.findings.catalogue import builtin_catalogue
from trmon_research.collapse.markdown import number, table
from trmon_research.collapse.rivals.comparison_table import approximations, comparison_table
from trmon_research.collapse.rivals.monitor_alerts import read_monitor_alerts
from trmon_research.collapse.stored_runs import StoredRun
from trmon_research.interventions.arms import PLACEBO, UNTOUCHED
from trmon_research.interventions.pair_folder import PairFolder
from trmon_research.interventions.pair_record import PairRecord
from trmon_research.interventions.pair_summary import ArmSummary, SavedRuns, summarise, trigger_line

FOLDER = Path(__file__).parents[2] / "data"
RIVALS, PAIRS = FOLDER / "rivals.json", FOLDER / "pairs"


def other_monitors(runs: Sequence[StoredRun], *, path: Path = RIVALS) -> list[str]:
    """Return the comparison with other monitors on the runs that were replayed through all of them."""
    found = read_monitor_alerts(path)
    replayed = set.intersection(*(set(record.runs) for record in found.monitors.values()))
    records = [run.record for run in runs if run.config.run_name in replayed]
    return [
        f"Each monitor at its defaults, fed step by step with {len(records)} of the runs (`make bench-rivals`).",
        "A collapse is found by an alert up to 100 updates after its onset. A long lead means little where other runs",
        "are alarmed as well.",
        "",
        *comparison_table(found, records),
        "",
        "What had to be approximated:",
        "",
        *approximations(),
    ]


def interventions(*, folder: Path = PAIRS) -> list[str]:
    """Return what each intervention saved and cost in the stored pairs."""
    records = list(PairFolder(folder).records())
    if not records:
        return ["No pair has been run."]
    return [
        *_setup(records),
        "",
        *table(
            [
                *("arm", "lost", "saved of untouched's", "saved of placebo's", "end reward", "mask rate"),
                *("healthy: reward", "healthy: lost"),
            ],
            [_row(summary) for summary in summarise(records)],
        ),
        "",
        *_causes(records),
    ]


def _setup(records: Sequence[PairRecord]) -> list[str]:
    return [
        trigger_line(records),
        "The model that triggers was fitted to the other runs (`fit --leave-out`). All arms of a pair go on from one",
        "state of the trainer; a run is lost if it collapses by the label or ends with 30% less reward than its peak",
        f"before the intervention. `{PLACEBO}` is `{UNTOUCHED}` with other random numbers. Runs that do not collapse",
        "have faults too; where the trigger does not fire, they are interrupted at update 300: that shows the cost.",
    ]


def _row(summary: ArmSummary) -> list[str]:
    healthy = summary.healthy_rewards
    return [
        summary.arm.replace("_", " "),
        f"{summary.lost} of {summary.triggered}",
        _share(summary.saved_of_untouched),
        _share(summary.saved_of_placebo),
        number(summary.end_reward, digits=3),
        f"{summary.mask_rate:.1%}",
        f"{fmean(healthy) - 1:+.1%}" if healthy else "-",
        f"{summary.healthy_lost} of {len(healthy)}",
    ]


def _share(saved: SavedRuns) -> str:
    return f"{saved.saved} of {saved.of}"


def _causes(records: Sequence[PairRecord]) -> list[str]:
    """Return which finding led at the trigger, by mechanism."""
    counts = Counter(
        (record.plan.config.mechanism.replace("_", " "), _cause(record))
        for record in records
        if record.plan.collapses and record.arms
    )
    rows = [[mechanism, cause, str(n)] for (mechanism, cause), n in sorted(counts.items())]
    return table(["mechanism", "cause named at the trigger", "runs"], rows)


def _cause(record: PairRecord) -> str:
    finding = record.prefix.finding
    return "none" if finding is None else builtin_catalogue().by_id[finding].title
