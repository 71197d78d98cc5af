"""The alerts of monitors on stored runs, as a JSON file with one line a run."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import msgspec

FORMAT = 1
CRITICAL = "critical"
"""How rlwatch, rldoctor and rlprobe all name their highest severity."""


class MonitorAlert(msgspec.Struct, frozen=True, array_like=True):
    """An alert: the update whose metrics raised it, the detector or rule, and the severity in the monitor's words."""

    step: int
    name: str
    severity: str


class MonitorRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The version of a monitor and, by the name of each run, the alerts that it raised, oldest first."""

    version: str
    runs: dict[str, tuple[MonitorAlert, ...]]


class MonitorAlerts(msgspec.Struct, frozen=True, kw_only=True):
    """The records of all monitors, by name."""

    format: int = FORMAT
    monitors: dict[str, MonitorRecord]


def write_monitor_alerts(path: Path, monitors: Mapping[str, MonitorRecord]) -> None:
    """Write the records of monitors, runs sorted by name."""
    records = ",\n".join(f"{json.dumps(name)}: {_record_json(record)}" for name, record in monitors.items())
    path.write_text(f'{{"format": {FORMAT}, "monitors": {{\n{records}\n}}}}\n')


def read_monitor_alerts(path: Path) -> MonitorAlerts:
    """Return the records in a file. Errors: msgspec.ValidationError, ValueError for another format."""
    found = msgspec.json.decode(path.read_bytes(), type=MonitorAlerts)
    if found.format != FORMAT:
        raise ValueError(f"{path} has format {found.format}; write it again with `make bench-rivals`")
    return found


def _record_json(record: MonitorRecord) -> str:
    lines = ",\n".join(
        f"{json.dumps(run)}: {msgspec.json.encode(alerts).decode()}" for run, alerts in sorted(record.runs.items())
    )
    return f'{{"version": {json.dumps(record.version)}, "runs": {{\n{lines}\n}}}}'
