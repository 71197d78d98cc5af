"""Local stores of trackio and of MLflow in files, as these trackers write them."""

from __future__ import annotations

import json
import math
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from trmon.domain.analysis.logged_steps import LogDefect, LogRow
from trmon.domain.errors import InvalidInput
from trmon.logs import format_of
from trmon.logs.log_format import LogItem

NEW_TABLE = """CREATE TABLE metrics (id INTEGER PRIMARY KEY AUTOINCREMENT, run_id TEXT NOT NULL,
    timestamp TEXT NOT NULL, run_name TEXT NOT NULL, step INTEGER NOT NULL, metrics TEXT NOT NULL,
    log_id TEXT, space_id TEXT)"""
OLD_TABLE = """CREATE TABLE metrics (id INTEGER PRIMARY KEY AUTOINCREMENT, timestamp TEXT NOT NULL,
    run_name TEXT NOT NULL, step INTEGER NOT NULL, metrics TEXT NOT NULL)"""


def trackio_store(folder: Path, *, names: tuple[str, ...], is_new: bool) -> Path:
    """Return a database of trackio with two steps of each run; releases since 2026 store the JSON as bytes."""
    path = folder / "math.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.execute(NEW_TABLE if is_new else OLD_TABLE)
        for name in names:
            for step, loss in enumerate((0.5, "NaN")):
                row = json.dumps({"loss": loss, "train": {"reward": 0.25}})
                values = [f"2026-08-21T10:00:0{step}+00:00", name, step, row.encode() if is_new else row]
                if is_new:
                    values.append(f"id-{name}")
                columns = "timestamp, run_name, step, metrics" + (", run_id" if is_new else "")
                marks = ", ".join("?" * len(values))
                database.execute(f"INSERT INTO metrics ({columns}) VALUES ({marks})", values)
    return path


def items_of(path: Path, name: str) -> list[LogItem]:
    found = format_of(path)
    assert found.name == name
    return list(found.read(path))


@pytest.mark.parametrize("is_new", [True, False])
def test_a_run_of_trackio_has_a_row_for_each_log(is_new: bool, tmp_path: Path) -> None:
    path = trackio_store(tmp_path, names=("grpo",), is_new=is_new)
    rows = [item.values for item in items_of(path, "trackio") if isinstance(item, LogRow)]
    assert rows == [
        {"step": 0, "timestamp": "2026-08-21T10:00:00+00:00", "loss": 0.5, "train/reward": 0.25},
        {"step": 1, "timestamp": "2026-08-21T10:00:01+00:00", "loss": "NaN", "train/reward": 0.25},
    ]


def test_one_of_several_runs_of_trackio_is_named(tmp_path: Path) -> None:
    path = trackio_store(tmp_path, names=("a", "b"), is_new=True)
    with pytest.raises(InvalidInput, match="has 2 runs; name one"):
        items_of(path, "trackio")
    assert len(items_of(path / "b", "trackio")) == len(items_of(path / "id-b", "trackio")) == 2


def test_a_row_of_trackio_without_json_is_a_defect(tmp_path: Path) -> None:
    path = trackio_store(tmp_path, names=("a",), is_new=False)
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.execute("UPDATE metrics SET metrics = 'x' WHERE step = 0")
    first, second = items_of(path, "trackio")
    assert isinstance(first, LogDefect)
    assert isinstance(second, LogRow)


def mlruns(folder: Path, run_id: str, *, stage: str = "active") -> Path:
    """Return the folder of a run of MLflow's file store."""
    run = folder / "mlruns" / "0" / run_id
    (run / "metrics" / "train").mkdir(parents=True)
    (run / "meta.yaml").write_text(f"lifecycle_stage: {stage}\nrun_id: {run_id}\nrun_name: grpo-{run_id}\n")
    (run / "metrics" / "loss").write_text("1700000000000 0.5 1\n1700000001000 nan 2\n")
    (run / "metrics" / "train" / "reward").write_text("1700000000000 0.25 1\n1700000001000 0.5 2\n")
    return run


@pytest.mark.parametrize("level", [0, 1, 2])
def test_a_run_of_mlflows_file_store_is_found_from_each_folder_above_it(level: int, tmp_path: Path) -> None:
    run = mlruns(tmp_path, "a1")
    mlruns(tmp_path, "gone", stage="deleted")
    (run / "metrics" / "kl").write_text("1700000002000 0.1 3\nbroken\n")
    *rows, third, defect = sorted(
        items_of([run, run.parent, run.parents[1]][level], "mlflow_folder"),
        key=lambda item: isinstance(item, LogDefect),
    )
    assert isinstance(defect, LogDefect)
    assert [item.values for item in (*rows[:1], third) if isinstance(item, LogRow)] == [
        {"step": 1, "_timestamp": 1_700_000_000.0, "loss": 0.5, "train/reward": 0.25},
        {"step": 3, "_timestamp": 1_700_000_002.0, "kl": 0.1},
    ]
    assert isinstance(rows[1], LogRow)
    assert math.isnan(rows[1].values["loss"])


def test_one_of_several_runs_of_mlflow_is_named(tmp_path: Path) -> None:
    mlruns(tmp_path, "a1")
    mlruns(tmp_path, "b2")
    with pytest.raises(InvalidInput, match=r"has 2 runs of MLflow; name one:\n.*0/a1  grpo-a1"):
        items_of(tmp_path / "mlruns", "mlflow_folder")
