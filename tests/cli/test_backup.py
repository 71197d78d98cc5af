"""Backup and restore as an engineer runs them: beside a service under load, then in its place."""

from __future__ import annotations

from pathlib import Path
from threading import Event, Thread

import httpx

from tests.fixtures.command import trmon
from tests.fixtures.messages import ORIGIN
from tests.fixtures.service import ServiceProcess
from tests.fixtures.trainer import MATH, send, send_step, statuses, step_report
from tests.fixtures.waiting import eventually
from trmon_client.core import wire

RUN = "/api/v1/runs/math/grpo"


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


def test_a_service_under_load_is_backed_up_and_its_restored_twin_goes_on(tmp_path: Path) -> None:
    service, file = ServiceProcess(tmp_path / "data"), tmp_path / "backup.sqlite"
    with service.client() as client:
        trainer = Trainer(client)
        trainer.start()
        eventually(lambda: trainer.step, lambda step: step >= 30)
        acknowledged = trainer.step
        made = trmon("backup", file, "--data-dir", service.data_dir)
        refused = trmon("restore", file, "--data-dir", service.data_dir)
        trainer.stop()
    service.kill()
    assert (made.returncode, made.stdout.startswith(f"{file}: ")) == (0, True), made.stderr
    assert (refused.returncode, "a service uses" in refused.stderr) == (1, True)

    twin = tmp_path / "twin"
    assert trmon("restore", file, "--data-dir", twin).returncode == 0
    service = ServiceProcess(twin)
    with service.client() as client:
        resent = [statuses(client, MATH, step_report(step)) for step in range(trainer.step + 6)]
        send(client, MATH, wire.Finish(**ORIGIN, sequence=1, finished=[wire.ChunkCount(trainer.step + 5, None, 1)]))
        eventually(lambda: client.get(RUN).json()["state"], lambda state: state == "finished")
        series = client.get(f"{RUN}/signals", params={"names": "lr", "points": 10_000}).json()
    assert service.stop() in (0, -15)
    assert resent[: acknowledged + 1] == [["duplicate"]] * (acknowledged + 1)
    assert resent[-1] == ["stored"]
    assert series["step"] == list(range(trainer.step + 6))


def test_for_postgresql_the_command_says_what_does_it(tmp_path: Path) -> None:
    said = trmon("backup", tmp_path / "b.dump", database_url="postgresql+psycopg://trmon:secret@127.0.0.1/trmon")
    assert said.returncode == 1
    assert "pg_dump --format=custom" in said.stderr
    assert "secret" not in said.stderr


def test_restoring_a_backup_without_a_token_says_that_the_service_is_open(tmp_path: Path) -> None:
    data, file = ("--data-dir", tmp_path / "data"), tmp_path / "backup.sqlite"
    trmon("migrate", *data)
    trmon("backup", file, *data)
    assert "trmon token create" in trmon("restore", file, *data).stdout
    trmon("token", "create", "root", "--scope", "admin", *data)
    trmon("backup", file, "--overwrite", *data)
    restored = trmon("restore", file, *data)
    assert (restored.returncode, "trmon token create" in restored.stdout) == (0, False)
