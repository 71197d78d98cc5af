"""`trmon query` as an operator runs it: every format, and a query that is interrupted."""

from __future__ import annotations

import csv
import io
import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from typer.testing import Result

from tests.fixtures.command import run_here
from tests.fixtures.databases import open_migrated_store
from tests.fixtures.waiting import eventually
from tests.store.lake.lakes import delete_moved, move_to_lake, put_ended_run
from trmon.config.settings import Settings
from trmon.store.database.sqlite import sqlite_file_of

STEPS = "SELECT run, step, signals, scalars['loss'] AS loss FROM batches ORDER BY run, step"


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a database with one run, beside a lake with another."""
    folder = tmp_path_factory.mktemp("data")
    store = open_migrated_store(sqlite_file_of(Settings(data_dir=folder).store_url))
    put_ended_run(store, "moved", steps=2)
    move_to_lake(store, str(folder / "lake"))
    delete_moved(store)
    put_ended_run(store, "here", steps=1)
    store.close()
    return folder


def query(data_dir: Path, *arguments: object) -> Result:
    """Run the command over the database and its lake."""
    return run_here("query", *arguments, data_dir=str(data_dir), lake_url=str(data_dir / "lake"))


def test_a_table_is_for_people(data_dir: Path) -> None:
    shown = query(data_dir, "SELECT run, n_batches FROM runs ORDER BY run").stdout
    assert [line.split() for line in shown.splitlines() if line.strip()][2:] == [["here", "1"], ["moved", "2"]]
    assert "only the first 200 rows" in query(data_dir, "SELECT range FROM range(1000)").stdout


def test_csv_and_json_have_all_rows(data_dir: Path, tmp_path: Path) -> None:
    [header, *cells] = csv.reader(io.StringIO(query(data_dir, STEPS, "--format", "csv").stdout))
    assert header == ["run", "step", "signals", "loss"]
    assert [row[:2] for row in cells] == [["here", "0"], ["moved", "0"], ["moved", "1"]]
    assert json.loads(cells[0][2]) == {"total_kl_k3": 0.001}
    assert query(data_dir, STEPS, "--format", "json", "-o", tmp_path / "rows.jsonl").stdout == ""
    lines = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text().splitlines()]
    assert lines[2] == {"run": "moved", "step": 1, "signals": {"total_kl_k3": 0.002}, "loss": None}
    [third] = csv.reader(
        io.StringIO(query(data_dir, "SELECT 1.0::DOUBLE / 3", "--format", "csv").stdout.splitlines()[1])
    )
    assert float(third[0]) == 1 / 3


def test_parquet_is_what_another_program_reads(data_dir: Path, tmp_path: Path) -> None:
    assert query(data_dir, STEPS, "--format", "parquet", "-o", tmp_path / "rows.parquet").exit_code == 0
    assert pq.read_table(tmp_path / "rows.parquet").column("run").to_pylist() == ["here", "moved", "moved"]
    to_file = ("--format", "parquet", "-o", tmp_path / "no.parquet")
    failed = query(data_dir, "SELECT CAST(run AS INT) FROM batches", *to_file)
    assert failed.exit_code == 1
    assert [path.name for path in tmp_path.iterdir()] == ["rows.parquet"]


def seconds_beside_main(pid: int) -> float:
    """Return the CPU time that a process has used in other threads than its first: those that compute the query."""
    threads = [task for task in Path(f"/proc/{pid}/task").iterdir() if task.name != str(pid)]
    ticks = 0
    for thread in threads:
        with suppress(OSError):
            fields = (thread / "stat").read_text().rpartition(")")[2].split()
            ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def test_ctrl_c_ends_a_query(data_dir: Path) -> None:
    endless = "SELECT count(*) FROM range(100000000) AS a, range(1000) AS b WHERE a.range * b.range % 7 = 3"
    command = [sys.executable, "-c", "from trmon.cli import app; app()", "query", endless, "--format", "csv"]
    with subprocess.Popen(
        [*command, "--data-dir", str(data_dir)], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        eventually(lambda: seconds_beside_main(process.pid) > 0.5 or process.poll() is not None)
        assert process.poll() is None
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
    assert process.returncode != 0
    assert b"Traceback" not in said
