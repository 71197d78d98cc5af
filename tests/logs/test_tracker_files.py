"""Stores of trackio and of MLflow in files and databases, and MLflow's tracking server."""

from __future__ import annotations

import json
import math
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.fixtures.tracker_logs import unpacked_mlflow_store
from trmon.cli.import_ import run_name
from trmon.domain.analysis.logged_steps import LogDefect, LogRow
from trmon.domain.errors import InvalidInput, NotReady
from trmon.logs import LogSource, format_of, mlflow_store
from trmon.logs.log_format import LogItem
from trmon.logs.mlflow_server import copy_run

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


METRIC = "INSERT INTO metrics (key, value, timestamp, run_uuid, step, is_nan) VALUES (?, ?, ?, ?, ?, 0)"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return unpacked_mlflow_store(tmp_path)


@contextmanager
def opened(store: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(store, isolation_level=None)) as database:
        yield database


def add_run(store: Path, run_id: str, *, name: str) -> None:
    """Add a run with the metrics of the one that is there."""
    with opened(store) as database:
        database.execute("CREATE TEMP TABLE run AS SELECT * FROM runs WHERE name = 'grpo'")
        database.execute("UPDATE run SET run_uuid = ?, name = ?", [run_id, name])
        database.execute("INSERT INTO runs SELECT * FROM run")
        database.execute(METRIC, ["loss", 0.5, 1, run_id, 1])


def id_of(store: Path, name: str) -> str:
    with opened(store) as database:
        return str(database.execute("SELECT run_uuid FROM runs WHERE name = ?", [name]).fetchone()[0])


def items_in(path: Path) -> list[LogItem]:
    found = format_of(path)
    assert found.name == "mlflow"
    return list(found.read(path))


def steps_of(path: Path) -> list[int]:
    return [item.values["step"] for item in items_in(path) if isinstance(item, LogRow)]


def test_the_metrics_of_a_step_are_a_row_with_its_time(store: Path) -> None:
    rows = [item for item in items_in(store) if isinstance(item, LogRow)]
    assert [row.values["step"] for row in rows] == [1, 2, 3, 4, 5, 6]
    assert [row.values["_timestamp"] for row in rows] == [1_700_000_000.0 + 60.0 * step for step in range(1, 7)]
    assert [row.values["rollout_corr/k3_kl"] for row in rows] == [0.001, 0.002, 0.003, 0.004, 0.005, 0.006]
    assert rows[3].values["actor/grad_norm"] == math.inf
    assert math.isnan(rows[4].values["actor/pg_loss"])
    assert LogSource.of(store).survey.framework == "verl"


def test_a_run_is_named_like_a_file_in_a_folder(store: Path) -> None:
    add_run(store, "b" * 32, name="qwen2.5")
    assert steps_of(store / "grpo") == steps_of(store / id_of(store, "grpo")) == [1, 2, 3, 4, 5, 6]
    assert steps_of(store / "qwen2.5") == [1]
    assert run_name(store / "qwen2.5") == "qwen2.5"
    assert run_name(store) == "mlflow"


def test_several_runs_are_refused_with_what_to_name(store: Path) -> None:
    add_run(store, "b" * 32, name="dapo")
    with pytest.raises(InvalidInput) as refused:
        items_in(store)
    lines = [
        f"{store}: has 2 runs; name one:",
        f"  {store}/{id_of(store, 'grpo')}  grpo",
        f"  {store}/{'b' * 32}  dapo",
    ]
    assert sorted(str(refused.value).splitlines()) == sorted(lines)
    with pytest.raises(InvalidInput, match=r"has no run 'ppo':\n"):
        items_in(store / "ppo")
    add_run(store, "c" * 32, name="dapo")
    with pytest.raises(InvalidInput, match=r"has 2 runs; name one:\n.*b{32}  dapo\n.*c{32}  dapo$"):
        items_in(store / "dapo")


def test_a_run_that_was_deleted_is_read_by_its_id_only(store: Path) -> None:
    assert steps_of(store / id_of(store, "deleted")) == [1, 2]
    with pytest.raises(InvalidInput, match="has no run 'deleted'"):
        items_in(store / "deleted")


def test_a_run_that_was_resumed_at_an_earlier_step_has_its_rows_in_the_order_of_the_writes(store: Path) -> None:
    with opened(store) as database:
        for step in (4, 5):
            database.execute(METRIC, ["mine/seen", step, 1_700_001_000_000 + step, id_of(store, "grpo"), step])
    assert steps_of(store) == [1, 2, 3, 4, 5, 6, 4, 5]


@pytest.mark.parametrize("journal", ["delete", "wal"])
def test_a_store_is_read_while_a_trainer_writes_to_it_and_does_not_keep_it_waiting(store: Path, journal: str) -> None:
    run_id = id_of(store, "grpo")
    with closing(sqlite3.connect(store, isolation_level=None, timeout=0.0)) as trainer:
        trainer.execute(f"PRAGMA journal_mode = {journal}")
        trainer.execute("BEGIN IMMEDIATE")
        trainer.execute(METRIC, ["mine/seen", 7.0, 1_700_000_420_000, run_id, 7])
        assert steps_of(store) == [1, 2, 3, 4, 5, 6]
        reading = format_of(store).read(store)
        next(reading)
        trainer.execute("COMMIT")
        assert len(list(reading)) == 5
        assert steps_of(store) == [1, 2, 3, 4, 5, 6, 7]


def test_a_store_that_is_locked_is_reported(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mlflow_store, "LOCK_TIMEOUT_SECONDS", 0.05)
    with opened(store) as trainer:
        trainer.execute("BEGIN EXCLUSIVE")
        with pytest.raises(NotReady, match=r"mlflow\.db is locked by another process; try again"):
            items_in(store)


def test_a_store_is_opened_for_reading_only(store: Path) -> None:
    before = store.read_bytes()
    assert steps_of(store)
    assert (store.read_bytes(), [path.name for path in store.parent.iterdir()]) == (before, ["mlflow.db"])


def test_what_is_damaged_or_not_mlflows_is_refused(store: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.db"
    with opened(other) as database:
        database.execute("CREATE TABLE notes (text)")
    with pytest.raises(InvalidInput, match=r"other\.db: cannot be read as a store of MLflow: no such table: runs"):
        items_in(other)
    data = store.read_bytes()
    store.write_bytes(data[: len(data) // 2])
    with pytest.raises(InvalidInput, match="cannot be read as a store of MLflow: "):
        items_in(store)
    text = tmp_path / "log.txt"
    text.write_text("step:1 - actor/lr:1e-06\n")
    with pytest.raises(InvalidInput, match="cannot be read: Not a directory"):
        format_of(text / "grpo")


def test_a_value_of_another_type_is_reported(store: Path) -> None:
    with opened(store) as database:
        database.execute("UPDATE metrics SET value = 'high' WHERE key = 'mine/seen' AND step = 2")
    [defect] = [item for item in items_in(store) if isinstance(item, LogDefect)]
    assert defect.reason.startswith(
        "has a metric whose values have other types than MLflow's; left out: ('mine/seen', 'high'"
    )


RUN = "0123456789abcdef0123456789abcdef"
LARGEST = 1.7976931348623157e308
VALUES = {"loss": [0.5, 0.4, "NaN"], "actor/grad_norm": [0.1, LARGEST, 0.3]}


def _answer(path: str, query: dict[str, list[str]]) -> Any:
    """Answer as MLflow 3 does, with two values on a page."""
    if path.endswith("/runs/get"):
        return {"run": {"info": {"run_id": RUN}, "data": {"metrics": [{"key": name, "value": 0.0} for name in VALUES]}}}
    name, begin = query["metric_key"][0], int(query.get("page_token", ["0"])[0])
    values = [
        {"key": name, "value": value, "timestamp": str(1_700_000_000_000 + 60_000 * step), "step": str(step)}
        for step, value in enumerate(VALUES[name])
    ]
    page = {"metrics": values[begin : begin + 2]}
    return page | ({"next_page_token": str(begin + 2)} if begin + 2 < len(values) else {})


@contextmanager
def serving(*, answer: Any = _answer) -> Iterator[tuple[str, list[str | None]]]:
    """Run a server; yield its address and the credentials that it was sent."""
    sent: list[str | None] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            sent.append(self.headers.get("Authorization"))
            url = urlsplit(self.path)
            body = json.dumps(answer(url.path, parse_qs(url.query))).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}", sent
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("page", ["/#/experiments/0/runs/{run}", "/#/experiments/0/runs/{run}/model-metrics?x=1"])
def test_the_metrics_of_a_run_are_rows_by_step(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", "secret")
    with serving() as (url, sent):
        copy_run(url + page.format(run=RUN), tmp_path / "run.jsonl")
    rows = [json.loads(line) for line in (tmp_path / "run.jsonl").read_text().splitlines()]
    assert rows[:2] == [
        {"step": 0, "_timestamp": 1_700_000_000.0, "loss": 0.5, "actor/grad_norm": 0.1},
        {"step": 1, "_timestamp": 1_700_000_060.0, "loss": 0.4, "actor/grad_norm": float("inf")},
    ]
    assert (len(rows), str(rows[2]["loss"])) == (3, "nan")
    assert set(sent) == {"Bearer secret"}


def test_an_address_without_a_run_or_of_another_server_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"names no run of MLflow; copy the address of the run's page"):
        copy_run("http://127.0.0.1:9/#/experiments/0", tmp_path / "run.jsonl")
    with pytest.raises(InvalidInput, match="cannot be read from MLflow"):
        copy_run(f"http://127.0.0.1:9/#/experiments/0/runs/{RUN}", tmp_path / "run.jsonl")
    with serving(answer=lambda *_: ["hello"]) as (url, _), pytest.raises(InvalidInput, match="as an MLflow"):
        copy_run(f"{url}/#/experiments/0/runs/{RUN}", tmp_path / "run.jsonl")
