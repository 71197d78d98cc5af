"""A database that is lost while a trainer sends, and restored to an earlier time by the commands of the docs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path
from types import MappingProxyType

import httpx
import pytest

from tests.fixtures.command import run_here
from tests.fixtures.fleet import WorkerProcess
from tests.fixtures.postgres import Postgres
from tests.fixtures.service import ServiceProcess
from tests.fixtures.waiting import eventually
from trmon.store.maintenance.restore import SKIPPED_IDS

pytestmark = [pytest.mark.server("postgres"), pytest.mark.timeout(600)]

PAGE = (Path(__file__).parents[2] / "docs" / "operations.md").read_text()
RUNBOOK = [line.strip() for line in PAGE.split("## Restore to a point in time")[1].splitlines()]
WAIT_SECONDS = 120.0


def lines(beginning: str) -> list[str]:
    """Return the lines of the runbook that begin so, with its backups in the folder of the server."""
    found = [line.replace("/backup/", "backup/") for line in RUNBOOK if line.startswith(beginning)]
    assert found, beginning
    return found


def setting(name: str, folder: Path) -> str:
    """Return the value of a setting of the runbook, with its backups in a folder."""
    [line] = [line for line in RUNBOOK if line.startswith(f"{name} = ")]
    return line.partition(" = ")[2].strip("'").replace("/backup/", f"{folder}/")


class RestorableFleet:
    """An API process and a worker over a PostgreSQL that archives its log."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self._folder = folder
        self._stack = stack
        # An archive outside of the server's folder, to which the server's user may write.
        self.postgres = stack.enter_context(Postgres(durable=True, settings={"archive_mode": "on"}))
        self.backups = self.postgres.folder / "backup"
        self.postgres.shell("mkdir --parents backup/wal")
        for name in ("archive_command", "archive_timeout"):
            value = setting(name, self.backups).replace("'", "''")
            self.postgres.execute(f"ALTER SYSTEM SET {name} = '{value}'")
        self.postgres.execute("SELECT pg_reload_conf()")
        self.url = self.postgres.database()
        assert run_here("migrate", database_url=self.url).exit_code == 0
        self.api = ServiceProcess(folder / "data", database_url=self.url)
        stack.callback(lambda: self.api.process.poll() is None and self.api.kill())
        self.start_worker()

    def start_worker(self) -> None:
        log = self._folder / "worker.log"
        self.worker = WorkerProcess(self.url, log=log, lease_seconds="3", grace_seconds="5")
        self._stack.enter_context(self.worker)

    def steps(self, run: str) -> list[int]:
        return closed_steps(self.api.url, run)

    def wait_for(self, run: str, *, n_steps: int) -> list[int]:
        """Wait until a run has so many closed steps, and return them."""
        return eventually(lambda: self.steps(run), lambda steps: len(steps) >= n_steps, timeout_seconds=WAIT_SECONDS)

    def restore(self, at: datetime) -> None:
        for line in (*lines("mv "), *lines("cp -a"), *lines("echo "), *lines("touch")):
            line = re.sub(r"_time = '[^']*'", f"_time = '{at.isoformat(sep=' ')}'", line)
            self.postgres.shell(line.replace("cp backup/wal/", f"cp {self.backups}/wal/"))
        self.postgres.start()
        [ask] = lines("psql")
        ask = ask.replace("$TRMON_DATABASE_URL", self.url)
        eventually(lambda: self.postgres.shell(ask).strip(), lambda said: said == "f", timeout_seconds=WAIT_SECONDS)


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[RestorableFleet]:
    with ExitStack() as stack:
        yield RestorableFleet(tmp_path, stack)


def test_what_was_acknowledged_later_is_lost_and_named_and_all_else_is_there(
    fleet: RestorableFleet, tmp_path: Path
) -> None:
    [backup] = lines("pg_basebackup")
    fleet.postgres.shell(backup.replace("$TRMON_DATABASE_URL", fleet.url))
    steady = SteadyTrainer(fleet.api.url, "steady", spool=tmp_path / "spool")
    before = fleet.wait_for("steady", n_steps=10)
    [(at,)] = fleet.postgres.execute("SELECT clock_timestamp()")
    [(stored,)] = query(fleet, "SELECT max(step) FROM report")
    late = SteadyTrainer(fleet.api.url, "late", spool=tmp_path / "spool")
    brief = SteadyTrainer(fleet.api.url, "brief", spool=tmp_path / "spool")
    fleet.wait_for("brief", n_steps=5)
    brief.stop()
    acknowledged = fleet.wait_for("steady", n_steps=len(before) + 20)
    fleet.wait_for("late", n_steps=5)
    fleet.postgres.execute("SELECT pg_switch_wal()")
    eventually(
        lambda: fleet.postgres.execute("SELECT last_archived_time > now() - interval '1 s' FROM pg_stat_archiver"),
        lambda rows: rows == [(True,)],
    )
    [(newest_id,)] = query(fleet, "SELECT max(id) FROM report")
    fleet.postgres.kill()
    fleet.api.kill()
    fleet.worker.kill()
    fleet.restore(at)
    prepared = run_here("migrate", "--restored", database_url=fleet.url)
    assert prepared.exit_code == 0, prepared.output
    assert "what came later is lost\n1 open runs have a note" in prepared.stdout
    fleet.api.start()
    fleet.start_worker()
    eventually(lambda: fleet.steps("steady")[-1:] > acknowledged[-1:], timeout_seconds=WAIT_SECONDS)
    n_steps, n_late = steady.stop(), late.stop()
    eventually(lambda: fleet.steps("steady")[-1], lambda last: last == n_steps - 1, timeout_seconds=WAIT_SECONDS)
    found = fleet.steps("steady")
    missing = sorted(set(range(n_steps)) - set(found))
    assert len(found) == len(set(found))
    assert set(before) <= set(found)
    assert missing == list(range(missing[0], missing[-1] + 1)), "more than the time between the point and the loss"
    assert set(missing) >= {step for step in acknowledged if step > stored}
    assert fleet.steps("brief") == []
    eventually(lambda: fleet.steps("late")[-1:], lambda last: last == [n_late - 1], timeout_seconds=WAIT_SECONDS)
    assert query(fleet, f"SELECT count(*) FROM report WHERE id > {newest_id} AND id <= {SKIPPED_IDS}") == [(0,)]
    notes = httpx.get(f"{fleet.api.url}/api/v1/runs/{PROJECT}/steady/notes", timeout=REQUEST_SECONDS).json()["items"]
    assert ["was restored to an earlier time" in note["text"] for note in notes] == [True]


def query(fleet: RestorableFleet, statement: str) -> list[tuple[int, ...]]:
    """Return the rows of a query of trmon's database."""
    said = fleet.postgres.shell(f'psql "{fleet.url}" --tuples-only --no-align --command "{statement}"')
    return [tuple(int(value) for value in line.split("|")) for line in said.split()]


PROJECT = "trainers"
STOP_SECONDS = 120.0
REQUEST_SECONDS = 30.0
_SCRIPT = """
import itertools, sys, threading
import numpy as np
import trmon_client as trmon

done = threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), done.set()), daemon=True).start()
monitor = trmon.init(project=sys.argv[4], run=sys.argv[2], url=sys.argv[1], spool_dir=sys.argv[3], config={"lr": 1e-6})
for step in itertools.count():
    mu = np.random.default_rng(step).normal(-1.0, 0.1, (4, 6))
    monitor.log_batch(step=step, rollout_logprobs=mu, logprobs=mu - 1e-3, mask=np.ones((4, 6)))
    if done.wait(0.2):
        break
monitor.close(timeout=None)
print(step + 1)
"""


def closed_steps(url: str, run: str) -> list[int]:
    """Return the steps of a run's closed batches, in order; none for an unknown run."""
    found: list[int] = []
    after: dict[str, str] | None = {}
    while after is not None:
        path = f"{url}/api/v1/runs/{PROJECT}/{run}/batches"
        answer = httpx.get(path, params={"limit": 200, **after}, timeout=REQUEST_SECONDS)
        if answer.status_code == 404:
            return []
        page = answer.raise_for_status().json()
        found += [batch["step"] for batch in page["items"]]
        after = {"after": page["next"]} if page["next"] else None
    return sorted(found)


class SteadyTrainer:
    """A run of PROJECT that logs five steps a second. Args: environment: variables for other code of the client."""

    def __init__(
        self, url: str, run: str, *, spool: Path, environment: Mapping[str, str] = MappingProxyType({})
    ) -> None:
        self.run = run
        self._process = subprocess.Popen(
            [sys.executable, "-c", _SCRIPT, url, run, str(spool), PROJECT],
            env={**os.environ, **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def stop(self) -> int:
        """End the run and return the number of steps that it has logged."""
        said, _ = self._process.communicate(timeout=STOP_SECONDS)
        assert self._process.returncode == 0
        return int(said)

    def abandon(self) -> None:
        """Kill the process, if it still runs, and close its pipes."""
        if self._process.poll() is None:
            self._process.kill()
            self._process.communicate()
