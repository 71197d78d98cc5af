"""Replays stored runs through each monitor, every run in a separate process.

A process apart keeps runs independent: rldoctor draws pairs of steps from one generator for its process, and rlwatch
and rlprobe leave hooks that run at exit.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from pathlib import Path

import msgspec

from trmon_research.collapse.rivals import rldoctor_replay, rlprobe_replay, rlwatch_replay
from trmon_research.collapse.rivals.monitor_alerts import MonitorAlert, MonitorAlerts, MonitorRecord
from trmon_research.collapse.rivals.trainer_log import logged_steps
from trmon_research.sweep.run_file import read_columns, read_record

REPLAYS = (rlwatch_replay, rldoctor_replay, rlprobe_replay)


class ReplayedRun(msgspec.Struct, frozen=True):
    """The name of a run and, by monitor, the alerts that it raised."""

    run: str
    alerts: dict[str, tuple[MonitorAlert, ...]]


def replay_run(path: Path) -> ReplayedRun:
    """Return what every monitor raises on the run in a file."""
    steps, config = list(logged_steps(read_columns(path))), read_record(path).config
    return ReplayedRun(path.stem, {each.PACKAGE: tuple(each.replay(steps, config)) for each in REPLAYS})


def replay_runs(paths: Sequence[Path], *, jobs: int) -> Iterator[ReplayedRun]:
    """Yield the runs in files as they are replayed, in the order of the files."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    with context.Pool(jobs, maxtasksperchild=1) as pool:
        yield from pool.imap(replay_run, paths)


def monitor_records(replayed: Sequence[ReplayedRun]) -> dict[str, MonitorRecord]:
    """Return the record of each monitor, with its installed version."""
    return {
        name: MonitorRecord(version=installed, runs={one.run: one.alerts[name] for one in replayed})
        for name, installed in _versions().items()
    }


def known_runs(found: MonitorAlerts) -> dict[str, ReplayedRun]:
    """Return the runs whose alerts are there, by name; none if they are of other versions or other monitors."""
    if {name: record.version for name, record in found.monitors.items()} != _versions():
        return {}
    shared = set.intersection(*(set(record.runs) for record in found.monitors.values()))
    return {
        run: ReplayedRun(run, {name: record.runs[run] for name, record in found.monitors.items()}) for run in shared
    }


def _versions() -> dict[str, str]:
    return {each.PACKAGE: version(each.PACKAGE) for each in REPLAYS}
