"""The command that replays a folder of runs and prints the comparison."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.progress import track

from trmon_research.collapse.rivals.comparison_table import approximations, comparison_table
from trmon_research.collapse.rivals.monitor_alerts import read_monitor_alerts, write_monitor_alerts
from trmon_research.collapse.rivals.replay_runs import known_runs, monitor_records, replay_runs
from trmon_research.collapse.stored_runs import read_runs
from trmon_research.collapse.told import read_told

ALERTS_FILE = Path(__file__).parents[3] / "data" / "rivals.json"

app = typer.Typer(add_completion=False)


@app.command()
def replay(
    runs: Annotated[Path, typer.Argument(help="Folder of a sweep.", exists=True, file_okay=False)],
    *,
    out: Annotated[Path, typer.Option(help="The file to write.")] = ALERTS_FILE,
    jobs: Annotated[int, typer.Option(help="Processes.", min=1)] = 1,
    again: Annotated[bool, typer.Option(help="Replay also the runs that the file has, whose trainer changed.")] = False,
) -> None:
    """Replay stored runs through rlwatch, rldoctor and rlprobe, write their alerts, and print how they compare.

    May be interrupted and repeated: runs that the file has, by the installed versions, are not replayed.
    """
    known = {} if again or not out.exists() else known_runs(read_monitor_alerts(out))
    paths = sorted(runs.glob("*.parquet"))
    replayed = [known[path.stem] for path in paths if path.stem in known]
    missing = [path for path in paths if path.stem not in known]
    for run in track(replay_runs(missing, jobs=jobs), description="replay", total=len(missing)):
        replayed.append(run)
        write_monitor_alerts(out, monitor_records(replayed))
    onsets = {run.name: run.onset for run in read_runs(runs)}
    told = read_told()
    ours = dict.fromkeys(onsets, ()) if told is None else told.runs
    for line in (*comparison_table(read_monitor_alerts(out), ours, onsets), "", *approximations()):
        typer.echo(line)
