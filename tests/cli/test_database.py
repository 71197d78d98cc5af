"""Backup and restore as an engineer runs them: beside a service under load, then in its place."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event, Thread
from typing import Any

import duckdb
import httpx
import pytest

from tests.fixtures.command import run_here, trmon
from tests.fixtures.databases import open_migrated_store
from tests.fixtures.messages import ORIGIN
from tests.fixtures.service import ServiceProcess, ThreadedService
from tests.fixtures.trainer import MATH, send, send_step, statuses, step_report, train
from tests.fixtures.waiting import eventually
from trmon.domain.identity import RunKey
from trmon_client.core import wire

RUN = "/api/v1/runs/math/grpo"
Start = Callable[[Path], ThreadedService]


@pytest.fixture
def start() -> Iterator[Start]:
    """Return a function that starts a service over a folder; all end with the test."""
    started: list[ThreadedService] = []

    def begin(data_dir: Path) -> ThreadedService:
        started.append(ThreadedService(data_dir))
        return started[-1]

    yield begin
    for service in started:
        service.stop()


class Trainer(Thread):
    """Sends one step after the other until it is told to stop; `step` is the last one acknowledged."""

    def __init__(self, client: httpx.Client) -> None:
        super().__init__()
        self._client = client
        self._told = Event()
        self.step = -1

    def run(self) -> None:
        while not self._told.is_set():
            send_step(self._client, MATH, step=self.step + 1)
            self.step += 1

    def stop(self) -> None:
        self._told.set()
        self.join()


def test_a_service_under_load_is_backed_up_and_its_restored_twin_goes_on(
    process: ServiceProcess, start: Start, tmp_path: Path
) -> None:
    file = tmp_path / "backup.sqlite"
    with process.client() as client:
        trainer = Trainer(client)
        trainer.start()
        eventually(lambda: trainer.step, lambda step: step >= 30)
        acknowledged = trainer.step
        made = run_here("backup", file, "--data-dir", process.data_dir)
        refused = run_here("restore", file, "--data-dir", process.data_dir)
        trainer.stop()
    process.kill()
    assert (made.exit_code, made.stdout.startswith(f"{file}: ")) == (0, True), made.stderr
    assert (refused.exit_code, "a service uses" in refused.stderr) == (1, True)

    twin = tmp_path / "twin"
    assert run_here("restore", file, "--data-dir", twin).exit_code == 0
    with start(twin).client() as client:
        resent = [statuses(client, MATH, step_report(step)) for step in range(trainer.step + 6)]
        send(client, MATH, wire.Finish(**ORIGIN, sequence=1, finished=[wire.ChunkCount(trainer.step + 5, None, 1)]))
        eventually(lambda: client.get(RUN).json()["state"], lambda state: state == "finished")
        series = client.get(f"{RUN}/signals", params={"names": "lr", "points": 10_000}).json()
    assert resent[: acknowledged + 1] == [["duplicate"]] * (acknowledged + 1)
    assert resent[-1] == ["stored"]
    assert series["step"] == list(range(trainer.step + 6))


def test_restoring_a_backup_without_a_token_says_that_the_service_is_open(tmp_path: Path) -> None:
    data, file = ("--data-dir", tmp_path / "data"), tmp_path / "backup.sqlite"
    run_here("migrate", *data)
    run_here("backup", file, *data)
    assert "trmon token create" in run_here("restore", file, *data).stdout
    run_here("token", "create", "root", "--scope", "admin", *data)
    run_here("backup", file, "--overwrite", *data)
    restored = run_here("restore", file, *data)
    assert (restored.exit_code, "trmon token create" in restored.stdout) == (0, False)


def test_a_token_of_a_database_that_was_made_for_it_is_told_where_that_is(tmp_path: Path) -> None:
    creating = ("token", "create", "--scope", "admin", "--data-dir", tmp_path / "data")
    first, second = run_here(*creating, "one"), run_here(*creating, "two")
    assert f"a new database was made for it, {tmp_path}/data/trmon.sqlite" in first.stderr
    assert (first.exit_code, first.stdout.count("\n"), second.stderr) == (0, 1, "")


ENDED, LIVE = RunKey("math", "grpo"), RunKey("math", "live")
STRICT = {"name": "strict", "criteria": [{"statistic": "mean_k3", "pair": "primary", "upper": 1e-4}]}


@pytest.fixture(scope="module")
def service(shared_service: ThreadedService, shared: httpx.Client) -> ThreadedService:
    """A service that has seen a run to its end, and half of another."""
    train(shared, ENDED, steps=range(5))
    shared.put(f"/api/v1/runs/{ENDED}/policy", json={"policy": STRICT, "reason": "try"}).raise_for_status()
    train(shared, LIVE, steps=range(4), end=False)
    eventually(lambda: len(answers(shared, LIVE)["batches"]["items"]), lambda n: n == 3)
    return shared_service


def answers(client: httpx.Client, key: RunKey) -> dict[str, Any]:
    """Return what a service says of a run, ids left out."""
    path = f"/api/v1/runs/{key}"
    asked = {
        "run": path,
        "batches": f"{path}/batches",
        "sequences": f"{path}/batches/2/sequences",
        "decisions": f"{path}/batches/2/decisions",
        "signals": f"{path}/signals?names=total_kl_k3,mask_rate,lr",
        "history": f"{path}/policy/history",
        "alerts": f"/api/v1/alerts?project={key.project}&run={key.run}",
    }
    said = {name: client.get(url).json() for name, url in asked.items()}
    # Of runs that are live in that service, and of its newest summary, which is made later.
    del said["run"]["mask_rate"], said["run"]["status"]
    return _without_ids(said | {"whatif": client.post(f"{path}/whatif", json={"policy": STRICT}).json()})


def _without_ids(answer: Any) -> Any:
    if isinstance(answer, list):
        return [_without_ids(item) for item in answer]
    if isinstance(answer, dict):
        return {name: _without_ids(value) for name, value in answer.items() if name not in ("id", "attempt_id")}
    return answer


def test_another_service_answers_as_the_first_did_and_goes_on(
    service: ThreadedService, shared: httpx.Client, start: Start, tmp_path: Path
) -> None:
    before = {key: answers(shared, key) for key in (ENDED, LIVE)}
    exported = run_here("export", "math", tmp_path / "archive", "--data-dir", service.data_dir)
    assert exported.exit_code == 0, exported.stderr
    assert "2 runs, 8 batches, 9 reports, 36 sequences" in exported.stdout

    other = tmp_path / "other"
    imported = [run_here("import", tmp_path / "archive", "--data-dir", other) for _ in range(2)]
    assert imported[0].stdout.splitlines() == ["math/grpo: imported", "math/live: imported"], imported[0].stderr
    assert imported[1].stdout.splitlines() == ["math/grpo: already present", "math/live: already present"]

    with start(other).client() as client:
        assert {key: answers(client, key) for key in (ENDED, LIVE)} == before
        for step in range(4, 6):
            send_step(client, LIVE, step=step)
        send(client, LIVE, wire.Finish(**ORIGIN, sequence=1, finished=[wire.ChunkCount(5, None, 1)]))
        eventually(lambda: client.get(f"/api/v1/runs/{LIVE}").json()["state"], lambda state: state == "finished")
        series = client.get(f"/api/v1/runs/{LIVE}/signals", params={"names": "lr"}).json()
    assert series["step"] == list(range(6))


def test_duckdb_reads_the_numbers_that_the_service_answers(
    service: ThreadedService, shared: httpx.Client, tmp_path: Path
) -> None:
    root = tmp_path / "archive"
    assert run_here("export", "math", root, "--data-dir", service.data_dir).exit_code == 0
    said = answers(shared, ENDED)

    def asked(select: str, table: str) -> list[tuple[Any, ...]]:
        files = f"read_parquet('{root}/table={table}/**/*.parquet', hive_partitioning = true)"
        return duckdb.sql(f"SELECT {select} FROM {files} WHERE run = 'grpo' ORDER BY ALL").fetchall()

    kl = said["signals"]["signals"]["total_kl_k3"]["last"]
    assert asked("step, signals.total_kl_k3, scalars.lr", "batches") == [
        (step, value, 1e-3) for step, value in enumerate(kl)
    ]
    columns = said["sequences"]["columns"]
    shown = [(row[1:]) for row in asked("step, place, n_tokens, total_sum_k3, accepted", "sequences") if row[0] == 2]
    accepted = said["sequences"]["decisions"][0]["accepted"]
    assert shown == list(zip(range(4), columns["n_tokens"], columns["total_sum_k3"], accepted, strict=True))
    assert asked("max(histogram_total)", "reports")[0][0] is not None
    assert asked("state, owner", "runs") == [("finished", "me")]


def test_what_is_wrong_is_one_line(tmp_path: Path) -> None:
    assert run_here("migrate", "--data-dir", tmp_path / "data").exit_code == 0
    unknown = run_here("export", "math", tmp_path / "archive", "--data-dir", tmp_path / "data")
    assert (unknown.exit_code, unknown.stderr) == (1, "trmon: no project 'math'\n")
    nothing = run_here("import", tmp_path, "--data-dir", tmp_path / "data")
    assert (nothing.exit_code, "export it again with `trmon export`" in nothing.stderr) == (1, True)


def test_without_pyarrow_it_says_what_brings_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    absent = tmp_path / "site"
    absent.mkdir()
    (absent / "pyarrow.py").write_text("raise ModuleNotFoundError(\"No module named 'pyarrow'\", name='pyarrow')")
    monkeypatch.setenv("PYTHONPATH", str(absent), prepend=os.pathsep)
    open_migrated_store(tmp_path / "data" / "trmon.sqlite").close()
    refused = trmon("export", "math", tmp_path / "archive", "--data-dir", tmp_path / "data")
    said = "trmon: archives need pyarrow; pip install 'trmon[export]' brings it\n"
    assert (refused.returncode, refused.stderr) == (1, said)
