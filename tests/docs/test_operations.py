"""The pages on operations, Python and queries: what they name exists, and what they tell to run is run here."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import httpx
import pytest

from tests.fixtures import postgres
from tests.fixtures.command import read_arguments, run_here
from tests.fixtures.messages import ORIGIN
from tests.fixtures.postgres import Postgres
from tests.fixtures.running_service import WELL, RecordedRuns
from tests.fixtures.service import ThreadedService
from tests.fixtures.trainer import MATH, await_batches, corrupt, send, train
from tests.fixtures.waiting import eventually
from tests.store.builders import alert, append, batch, batch_key, commit, report_intake, start_intake, stored_reports
from tests.store.lake.lakes import delete_moved, move_to_lake
from trmon.config.settings import Settings
from trmon.domain.access import EVERYTHING
from trmon.domain.alerts.alert import AlertState
from trmon.domain.identity import RunKey
from trmon.domain.severity import Severity
from trmon.metrics.counters import COMPONENT_GAUGES, Counters
from trmon.store import Store
from trmon.store.database import engines_of
from trmon_client.core import wire

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "operations.md").read_text()
BLOCK = re.compile(r"```python\n(.*?)```", re.DOTALL)
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


NOTEBOOK = json.loads((DOCS / "notebooks" / "runs.ipynb").read_text("utf-8"))
NOTEBOOK_CELLS = [cell for cell in NOTEBOOK["cells"] if cell["cell_type"] == "code"]
PYTHON_CELLS = BLOCK.findall((DOCS / "python.md").read_text("utf-8"))


@pytest.fixture(scope="module")
def watched(shared_service: ThreadedService, shared: httpx.Client) -> ThreadedService:
    """A service with a corrupt run, a healthy one, and one without a step that the page deletes."""
    train(shared, RunKey("math", "fine"), steps=range(4))
    send(shared, RunKey("math", "old"), wire.Start(**ORIGIN))
    corrupt(shared, MATH)
    eventually(lambda: shared.get(f"/api/v1/runs/{MATH}").json()["status"]["verdict"]["kind"] == "act")
    return shared_service


@pytest.fixture
def execute(watched: ThreadedService, monkeypatch: pytest.MonkeyPatch) -> Callable[[list[str]], dict[str, Any]]:
    """Return a function that runs cells, and returns the names that they leave."""
    monkeypatch.setenv("TRMON_URL", watched.url)
    monkeypatch.setenv("MPLBACKEND", "Agg")

    def run_cells(cells: list[str]) -> dict[str, Any]:
        names: dict[str, Any] = {}
        for number, cell in enumerate(cells):
            exec(compile(cell, f"cell {number}", "exec"), names)
        names["service"].close()
        return names

    return run_cells


def test_the_code_of_the_page_runs(execute: Callable[[list[str]], dict[str, Any]], shared: httpx.Client) -> None:
    assert len(PYTHON_CELLS) > 5
    found = execute(PYTHON_CELLS)
    assert found["found"].findings[0].finding == "corrupt_logprobs"
    assert len(found["frame"]) == len(found["history"]) > 3
    assert found["note"].step == 3
    assert shared.get("/api/v1/runs/math/old").status_code == 404
    assert shared.get(f"/api/v1/runs/{MATH}/notes").json()["items"] == []


def test_the_notebook_runs(execute: Callable[[list[str]], dict[str, Any]]) -> None:
    found = execute(["".join(cell["source"]) for cell in NOTEBOOK_CELLS])
    assert found["worst"].name == str(MATH)
    assert found["diagnosis"].findings[0].finding == "corrupt_logprobs"
    assert [line.get_label() for line in found["axes"].get_lines()] == ["mask_rate", "invalid_fraction"]
    assert list(found["compared"].columns) == ["step", "math/grpo mask_rate", "math/fine mask_rate"]
    assert list(found["rates"]) == ["trm_max", "geo_mask", "seq_mis"]


def test_the_notebook_is_kept_without_outputs() -> None:
    assert {(len(cell["outputs"]), cell["execution_count"]) for cell in NOTEBOOK_CELLS} == {(0, None)}


QUERIES = (DOCS / "queries.md").read_text("utf-8")
MECHANISMS, FALSE_PAGES, MASKED = re.findall(r"```sql\n(.*?)```", QUERIES, re.DOTALL)
CELLS = BLOCK.findall(QUERIES)
STRICT = '{"name": "strict", "criteria": [{"statistic": "max_binary_kl", "pair": "total", "upper": 0.02}]}'


@dataclass(frozen=True)
class MovedRuns:
    """The folder of a database, and the lake that the recorded runs are in."""

    data_dir: Path
    lake: Path


@pytest.fixture(scope="module")
def moved(recorded: RecordedRuns, tmp_path_factory: pytest.TempPathFactory) -> MovedRuns:
    """An ill run and a healthy one in a lake, of which the latter was paged for nothing, and one in the database."""
    folder = tmp_path_factory.mktemp("moved")
    made = MovedRuns(data_dir=folder / "data", lake=folder / "lake")
    service, live = recorded.serve(recorded.finished, made.data_dir), RunKey("math", "live")
    with service.client() as client:
        train(client, live, steps=range(4), end=False)
        await_batches(client, live, n=3)
    service.stop()
    with closing(Store.open(Settings(data_dir=made.data_dir).store_url)) as store:
        well = store.runs.get(WELL.key, access=EVERYTHING)
        move_to_lake(store, str(made.lake), now=time.time() + 1)
        delete_moved(store)
        given = {"severity": Severity.PAGE, "state": AlertState.RESOLVED, "attempt_id": well.attempt_id}
        commit(store, well.id, alerts=[alert(run_id=well.id, rule="nervous", **given)])
    return made


def answered(moved: MovedRuns, sql: str) -> list[dict[str, Any]]:
    shown = run_here("query", sql, "--format", "json", data_dir=str(moved.data_dir), lake_url=str(moved.lake))
    assert shown.exit_code == 0, shown.output
    return [json.loads(line) for line in shown.stdout.splitlines()]


def test_the_mechanism_of_the_ill_run_is_found(moved: MovedRuns) -> None:
    [row] = answered(moved, MECHANISMS)
    assert (row["mechanism"], row["runs"]) == ("stale_rollouts", 1)


def test_the_page_on_the_healthy_run_is_false(moved: MovedRuns) -> None:
    assert answered(moved, FALSE_PAGES) == [{"rule": "nervous", "false_pages": 1, "runs": 1, "share": 1.0}]


def test_sql_and_a_what_if_mask_the_same_share(moved: MovedRuns, monkeypatch: pytest.MonkeyPatch) -> None:
    [of_lake] = answered(moved, MASKED.replace("n_tokens > 0", "n_tokens > 0 AND month IS NOT NULL"))
    shown = run_here("whatif", "--source", moved.lake, "--policy", STRICT, "--json")
    total = json.loads(shown.stdout)["total"]
    assert (of_lake["n_sequences"], of_lake["mask_rate"]) == (total["n_sequences"], total["mask_rate"])
    [with_live] = answered(moved, MASKED)
    assert with_live["n_sequences"] == total["n_sequences"] + 3 * 4 + 4

    monkeypatch.setenv("TRMON_LAKE_URL", str(moved.lake))
    namespace: dict[str, Any] = {}
    for cell in CELLS:
        exec(compile(cell, "cell", "exec"), namespace)
    assert namespace["ill"] == [("stale_rollouts", 1)]
    assert namespace["masked"].rows() == [("math", pytest.approx(total["mask_rate"], rel=1e-12))]
    assert namespace["rates"] == [("math", pytest.approx(total["mask_rate"], rel=1e-12))]
