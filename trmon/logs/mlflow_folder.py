"""A run of MLflow in files: its folder `mlruns/EXPERIMENT/RUN`, or one above it that has no other run.

A metric is a file in the folder `metrics`, named after it, with lines of milliseconds since 1970, value and step.
Source: mlflow, mlflow/store/tracking/file_store.py (_log_run_metric), commit 001cc178.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from operator import attrgetter
from pathlib import Path

from trmon.domain.analysis.logged_steps import LogDefect
from trmon.domain.errors import InvalidInput
from trmon.logs.log_format import LogFormat, LoggedValue, LogItem, rows_of_values

DESCRIPTION = "meta.yaml"
METRICS = "metrics"
DELETED = ".trash"
SHOWN_RUNS = 10
_NAME = re.compile(r"^run_name: *['\"]?(.*?)['\"]? *$", re.MULTILINE)
_IS_DELETED = re.compile(r"^lifecycle_stage: *deleted", re.MULTILINE)


def _runs_in(folder: Path) -> list[Path]:
    """Return the folders of runs in a folder: itself, those of an experiment, or those of all experiments."""
    for pattern in (DESCRIPTION, f"*/{DESCRIPTION}", f"*/*/{DESCRIPTION}"):
        found = [file.parent for file in sorted(folder.glob(pattern)) if (file.parent / METRICS).is_dir()]
        if found:
            return [run for run in found if DELETED not in run.parts and not _IS_DELETED.search(_described(run))]
    return []


def _described(run: Path) -> str:
    try:
        return (run / DESCRIPTION).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _chosen(folder: Path) -> Path:
    """Return the only run in a folder. Errors: InvalidInput."""
    runs = _runs_in(folder)
    if len(runs) == 1:
        return runs[0]
    listed = "".join(
        f"\n  {run}  {name[1] if (name := _NAME.search(_described(run))) else ''}" for run in runs[:SHOWN_RUNS]
    )
    raise InvalidInput(str(folder), f"has {len(runs)} runs of MLflow; name one:{listed}")


def _metric_files(path: Path) -> list[Path]:
    return sorted(file for file in (_chosen(path) / METRICS).rglob("*") if file.is_file())


def _read(path: Path) -> Iterator[LogItem]:
    run = _chosen(path)
    values: list[LoggedValue] = []
    for file in _metric_files(path):
        name = file.relative_to(run / METRICS).as_posix()
        for number, line in enumerate(file.read_text(encoding="utf-8", errors="replace").splitlines(), start=1):
            value = _value(name, line)
            if value is None:
                yield LogDefect(0, f"{METRICS}/{name}: line {number} is not a time, a value and a step; left out")
            else:
                values.append(value)
    values.sort(key=attrgetter("seconds", "step"))
    yield from rows_of_values(values, writer=run.name)


def _value(name: str, line: str) -> LoggedValue | None:
    """Return the value of a line; before MLflow 1.0 it had no step, which is 0 then."""
    try:
        at_ms, value, *rest = line.split()
        seconds = int(at_ms) / 1000.0
        step = int(rest[0]) if rest else 0
        return LoggedValue(name, float(value), step=step, seconds=seconds if math.isfinite(seconds) else 0.0)
    except (ValueError, OverflowError):
        return None


MLFLOW_FOLDER = LogFormat(
    name="mlflow_folder",
    description="a folder of MLflow's file store with one run (mlruns/EXPERIMENT/RUN)",
    matches=lambda sample: sample.path.is_dir() and bool(_runs_in(sample.path)),
    read=_read,
    files=_metric_files,
    has_lines=False,
)
