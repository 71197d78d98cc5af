"""The page on operations: each command on it exists and is run here, each setting and metric on it is one."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import duckdb
import pytest

from tests.fixtures import postgres
from tests.fixtures.command import read_arguments, run_here
from tests.fixtures.postgres import Postgres
from tests.store.builders import append, batch, batch_key, commit, report_intake, start_intake, stored_reports
from trmon.config.settings import Settings
from trmon.metrics.counters import COMPONENT_GAUGES, Counters
from trmon.store import Store
from trmon.store.database import engines_of

PAGE = (Path(__file__).parents[2] / "docs" / "operations.md").read_text()
LINES = [line.strip() for line in re.findall(r"^    (\S.*)$", PAGE, re.MULTILINE)]


def lines(beginning: str) -> list[str]:
    found = [line for line in LINES if line.startswith(beginning)]
    assert found, beginning
    return found


def commands() -> list[list[str]]:
    """Return the page's lines of trmon, without the variables before it."""
    words = [shlex.split(line, comments=True) for line in LINES]
    return [line[line.index("trmon") + 1 :] for line in words if "trmon" in line and line[0] not in ("createdb", "pip")]


@pytest.mark.parametrize("arguments", commands(), ids=" ".join)
def test_every_command_takes_these_arguments(arguments: list[str]) -> None:
    read_arguments(arguments)


def test_every_setting_is_one() -> None:
    named = {name.lower() for name in re.findall(r"TRMON_([A-Z_]+)", PAGE)}
    assert named
    assert named <= Settings.model_fields.keys()


def test_every_metric_of_the_table_is_there() -> None:
    families = Counters().registry.collect()
    known = {f"{family.name}_total" if family.type == "counter" else family.name for family in families}
    known |= COMPONENT_GAUGES.keys()
    named = {
        name for row in re.findall(r"^\| (`trmon_.*?) \|", PAGE, re.MULTILINE) for name in re.findall(r"`(\w+)`", row)
    }
    assert named
    assert named <= known


def test_a_process_opens_no_more_connections_than_it_says() -> None:
    opened = engines_of("postgresql://trmon@nowhere/trmon")
    pools = [engine.pool for engine in (opened.reader, opened.writing)]
    most = sum(pool.size() + pool._max_overflow for pool in pools)
    assert f"Each process opens up to {most} connections" in PAGE
    opened.dispose()


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the page's folders and a database of a run in it."""
    for name in ("backup", "archive"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path)
    fill(f"sqlite:///{tmp_path}/trmon-data/trmon.sqlite")
    return tmp_path


def fill(url: str) -> None:
    store = Store.open(url)
    store.migrate()
    append(store, start_intake(), *(report_intake(step=step) for step in range(3)))
    signals = {"total_kl_k3": 1e-3, "mask_rate": 0.0}
    rows = tuple(batch(batch_key(1, step), run_id=1, ordinal=step + 1, signals=signals) for step in range(3))
    commit(store, 1, batches=rows)
    store.close()


def here(line: str, place: Path) -> str:
    """Return a line with its folders in the test's."""
    return line.replace("/backup/", f"{place}/backup/").replace("/archive/", f"{place}/archive/")


def run(line: str, place: Path) -> str:
    """Run a line and return what it prints."""
    ended = run_here(*shlex.split(here(line, place))[1:])
    assert ended.exit_code == 0, ended.output
    return ended.stdout


def test_the_sqlite_commands_do_what_the_page_says(place: Path) -> None:
    for _ in range(2):
        [backup] = lines("trmon backup")
        assert "checked" in run(backup, place)
    [vacuum] = [shlex.split(line) for line in lines("python -c")]
    subprocess.run([sys.executable, *vacuum[1:]], check=True)
    [restore] = lines("trmon restore")
    assert "trmon.sqlite.replaced-1" in run(restore, place)
    store = Store.open(f"sqlite:///{place}/trmon-data/trmon.sqlite")
    store.check()
    assert len(stored_reports(store, 1)) == 3
    store.close()


def test_the_archive_commands_do_what_the_page_says(place: Path) -> None:
    run(lines("trmon export")[0], place)
    said = [run(line, place) for line in dict.fromkeys(lines("trmon import"))]
    assert said == ["math/grpo: already present\n", "math-2026/grpo: imported\n"]
    by_step, batches = (shlex.split(here(line, place))[2] for line in lines("duckdb -c"))
    assert [row[0] for row in duckdb.sql(by_step).fetchall()] == [0, 1, 2]
    assert [row[1] for row in duckdb.sql(batches).fetchall()] == [0, 1, 2]


@pytest.mark.server("postgres")
def test_the_postgresql_commands_do_what_the_page_says(
    place: Path, postgres_url: str, postgres_server: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(postgres_url)
    monkeypatch.setenv("TRMON_DATABASE_URL", postgres_url)
    monkeypatch.setenv("PATH", f"{postgres.binaries()}{os.pathsep}{os.environ['PATH']}")
    [dump] = lines("pg_dump")
    subprocess.run(here(dump, place), shell=True, check=True)
    assert dump.split(" --file")[0] in run_here("backup", place / "b.dump").output
    restored = postgres_server.database()
    [restore] = lines("pg_restore")
    restore = re.sub(r"--dbname=\S+", f"--dbname={restored}", here(restore, place))
    subprocess.run(restore, shell=True, check=True)
    store = Store.open(restored)
    store.check()
    append(store, report_intake(step=3))
    assert [stored.id for stored in stored_reports(store, 1)] == [1, 2, 3, 4]
    store.close()
    postgres_server.drop(restored)
