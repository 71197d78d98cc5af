"""Commands over the runs of a service and its database: lists, signals, notes, what-ifs, comparisons and queries."""

from __future__ import annotations

import csv
import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import httpx
import pyarrow.parquet as pq
import pytest
from rich.console import Console
from typer.testing import Result

from tests.fixtures.command import run_here
from tests.fixtures.databases import open_migrated_store
from tests.fixtures.running_service import make_token
from tests.fixtures.service import ThreadedService
from tests.fixtures.trainer import MATH, await_batches, train
from tests.fixtures.waiting import eventually
from tests.store.lake.lakes import delete_moved, move_to_lake, put_ended_run
from tests.terminal.test_fleet import a_run
from trmon.cli.diff import comparison_lines
from trmon.cli.runs import note_table
from trmon.config.settings import Settings
from trmon.domain.access import Scope
from trmon.domain.health.judgement import VerdictKind
from trmon.domain.identity import RunKey
from trmon.store.database.sqlite import sqlite_file_of
from trmon.terminal.text import PIPE_WIDTH
from trmon_client.api import ApiNumber, ComparedRun, ComparisonInfo, NoteInfo, PolicyInfo
from trmon_client.api.comparison import ConfigDifferenceInfo

OTHER = RunKey("code", "ppo")
N_STEPS = 5


@pytest.fixture(scope="module")
def watched(shared_service: ThreadedService, shared: httpx.Client) -> str:
    """The URL of a service with a finished run, and one that continues."""
    train(shared, MATH, steps=range(N_STEPS))
    train(shared, OTHER, steps=range(2), end=False)
    await_batches(shared, OTHER, n=1)
    return shared_service.url


def test_runs_are_filtered(watched: str) -> None:
    def found(*filters: object) -> list[str]:
        shown = run_here("runs", "--json", *filters, url=watched)
        return [json.loads(line)["run"] for line in shown.stdout.splitlines()]

    assert found("--tag", "dapo", "--owner", "me") == ["ppo", "grpo"]
    assert found("--project", "math", "--state", "finished", "--limit", 1) == ["grpo"]
    assert found("--archived") == []


def test_signals_are_the_same_for_a_spreadsheet_and_for_a_program(watched: str) -> None:
    asked = ("signals", "math/grpo", "lr", "total_kl_k3", "--steps", "1:3")
    table, lines = (run_here(*asked, form, url=watched).stdout.splitlines() for form in ("--csv", "--json"))
    rows = [*csv.DictReader(table)]
    assert [(row["step"], row["lr"]) for row in rows] == [("1", "0.001"), ("2", "0.001"), ("3", "0.001")]
    read = [json.loads(line) for line in lines]
    assert [str(row["signals"]["total_kl_k3"]) for row in read] == [row["total_kl_k3"] for row in rows]


def test_a_note_is_written_and_read(watched: str) -> None:
    written = run_here("note", "math/grpo", "lr raised", "--step", 3, url=watched)
    assert written.exit_code == 0, written.stderr
    assert "lr raised" in written.stdout
    [note] = [json.loads(line) for line in run_here("note", "math/grpo", "--json", url=watched).stdout.splitlines()]
    assert (note["text"], note["step"], note["author"]) == ("lr raised", 3, "local")
    made_safe = run_here("note", "math/grpo", "a\x1b[2Jb", url=watched)
    assert (made_safe.exit_code, "a\ufffd[2Jb" in made_safe.stdout) == (0, True)


def test_a_run_is_deleted_after_asking_by_an_admin_and_the_audit_log_says_so(service: ThreadedService) -> None:
    with service.client() as client:
        train(client)
        client.headers["Authorization"] = f"Bearer {make_token(client, 'root', Scope.ADMIN)}"
        reader = make_token(client, "reader", Scope.READ)
        root = client.headers["Authorization"].removeprefix("Bearer ")
        asked = run_here("delete", "math/grpo", answer="n\n", url=service.url, token=root)
        assert "Delete math/grpo (finished, at step 2) with all its data? [y/N]" in asked.stdout
        assert (asked.exit_code, client.get("/api/v1/runs/math/grpo").status_code) == (1, 200)
        refused = run_here("delete", "math/grpo", "--yes", url=service.url, token=reader)
        assert (refused.exit_code, "lacks the scope 'admin'" in refused.stderr) == (1, True)
        done = run_here("delete", "math/grpo", answer="y\n", url=service.url, token=root)
        assert (done.exit_code, "deleted math/grpo" in done.stdout) == (0, True), done.stderr
        assert client.get("/api/v1/runs/math/grpo").status_code == 404
        [entry] = client.get("/api/v1/audit", params={"action": "run.delete"}).json()["items"]
        assert (entry["actor"], entry["target"]) == ("root", "math/grpo")


@pytest.fixture
def tokyo(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("tokyo")
def test_a_time_names_its_zone() -> None:
    written = NoteInfo(id=1, step=62, text="lr halved", author="ada", at=1_760_000_000.0)
    text = io.StringIO()
    Console(file=text, width=100).print(note_table([written]))
    [line] = [line for line in text.getvalue().splitlines() if "ada" in line]
    assert line.split() == ["2025-10-09", "17:53:20", "JST", "ada", "62", "lr", "halved"]


def test_a_soft_policy_shows_its_weights(watched: str) -> None:
    shown = run_here("whatif", "math/grpo", "--policy", "trm_avg(delta=1e-12,soft_tau=1e30)", url=watched)
    assert shown.exit_code == 0, shown.stderr
    said = "trm_avg(delta=1e-12, soft_tau=1e+30) is soft: mean weight 100.00%, effective share 100.00%"
    assert said in " ".join(shown.stdout.split())


def test_what_the_api_answers_of_some_steps_is_printed_on_request(watched: str) -> None:
    asked = ("whatif", "math/grpo", "--policy", "geo_mask", "--policy", "opsm", "--json", "--to", 3, "--url", watched)
    for chosen, first in ((("--from", 1), 1), (("--max-steps", 2), 2)):
        geo_mask, opsm = (json.loads(line) for line in run_here(*asked, *chosen).stdout.splitlines())
        assert (geo_mask["policy"], opsm["policy"]) == ("geo_mask", "opsm")
        assert {answer["range"]["first_step"] for answer in (geo_mask, opsm)} == {first}
        assert (geo_mask["total"]["n_sequences"], opsm["total"]["n_sequences"]) == (4 * (4 - first), 0)
        assert "advantages" in next(iter(opsm["undecided"]))


LONG = "a-very-long-name-of-a-run-that-nobody-can-read-in-eighty-columns-of-a-terminal-at-all"


def comparison(n: int) -> ComparisonInfo:
    policy = PolicyInfo(
        name="trm_auto",
        hash="abcdef0123456789",
        policy={},
        shadows=(),
        author="default",
        reason="",
        created_at=0.0,
        from_step=0,
        pinned=False,
        evidence={},
    )
    unknown = ApiNumber("nan")
    run = ComparedRun(
        fleet=a_run(VerdictKind.WATCH, name=LONG),
        policy=policy,
        created_at=0.0,
        step=(1, 2),
        elapsed_seconds=(1.0, 2.0),
        signals={"reward_mean": (ApiNumber(0.123456789), unknown), "loss": (unknown, unknown)},
        partings=(),
        sentence="They part at step 20: KL first.",
    )
    entry = ConfigDifferenceInfo(name=f"actor.{LONG}", values=(LONG,) * n, given=(*(True,) * (n - 1), False))
    return ComparisonInfo(by="step", proposed=n == 2, same_policy=False, config=(entry,), runs=(run,) * n)


@pytest.mark.parametrize("n", [2, 3, 8])
@pytest.mark.parametrize("width", [80, 40, 20])
def test_columns_are_cut_to_the_terminal_and_never_vanish(n: int, width: int) -> None:
    lines = list(comparison_lines(comparison(n), width=width))
    assert any("B is the sound run" in line for line in lines) == (n == 2)
    table = lines[lines.index("") + 1 :]
    assert all(len(line) <= max(width, 24 + n * 8) for line in table)
    head = table[0].split()
    assert head == list("ABCDEFGH"[:n])
    reward = next(line for line in table if line.startswith("reward_mean"))
    assert reward.split()[1] == "0.1235" if width == 80 else "0.1" in reward


def test_in_a_pipe_nothing_is_cut_and_columns_are_as_wide_as_what_they_hold() -> None:
    lines = list(comparison_lines(comparison(2), width=PIPE_WIDTH))
    assert not any("…" in line for line in lines)
    assert lines[-1] == f'actor.{LONG}  "{LONG}"  -'
    assert max(map(len, lines)) < 200


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
