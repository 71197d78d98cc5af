"""Supervised processes on one port are replaced without losing a report; a worker waits for its database."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from tests.fixtures.command import trmon
from tests.fixtures.fleet import WorkerProcess
from tests.fixtures.postgres import Postgres
from tests.fixtures.sending import Sending
from tests.fixtures.waiting import eventually
from tests.store.builders import stored_reports
from trmon.domain.identity import RunKey
from trmon.fleet.supervisor import ChildProcess
from trmon.store import Store


def children_of(process: subprocess.Popen[str]) -> Path:
    """Return the file with the ids of a process's children."""
    return Path(f"/proc/{process.pid}/task/{process.pid}/children")


@pytest.fixture
def supervised(postgres_url: str) -> Iterator[subprocess.Popen[str]]:
    """`trmon serve --replicas 2`."""
    command = [sys.executable, "-m", "trmon", "serve", "--port", "0", "--replicas", "2"]
    environment = {**os.environ, "TRMON_DATABASE_URL": postgres_url}
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment, text=True) as process:
        yield process
        process.kill()


def replicas_of(supervised: subprocess.Popen[str]) -> set[int]:
    return set(map(int, children_of(supervised).read_text().split()))


def steps_of(database_url: str, key: RunKey) -> list[int]:
    store = Store.open(database_url)
    run = next(run for run in store.run_log.unfinished_runs() if run.key == key)
    found = [stored.report.step for stored in stored_reports(store, run.id)]
    store.close()
    return found


def are_replaced(supervised: subprocess.Popen[str], sending: Sending, replicas: set[int]) -> None:
    """Wait until new replicas have taken the place of some, and reports are stored."""
    eventually(lambda: len(now := replicas_of(supervised)) == 2 and not now & replicas)
    n = len(sending.acknowledged)
    eventually(lambda: len(sending.acknowledged) > n + 20)


@pytest.mark.server("postgres")
def test_replicas_are_replaced_without_losing_a_report_and_end_with_their_supervisor(
    supervised: subprocess.Popen[str], postgres_url: str
) -> None:
    assert supervised.stdout is not None
    url = supervised.stdout.readline().strip().removeprefix("trmon_url=")
    key, before = RunKey("math", "replaced"), replicas_of(supervised)
    with Sending(url, key) as sending:
        eventually(lambda: len(sending.acknowledged) > 20)
        supervised.send_signal(signal.SIGHUP)
        are_replaced(supervised, sending, before)
        assert set(sending.answers) <= {200, 0}
        killed = min(replicas_of(supervised))
        os.kill(killed, signal.SIGKILL)
        are_replaced(supervised, sending, {killed})
    assert steps_of(postgres_url, key)[: len(sending.acknowledged)] == list(range(len(sending.acknowledged)))
    assert httpx.get(f"{url}/readyz", trust_env=False).status_code == 200
    last, port = replicas_of(supervised), httpx.URL(url).port
    supervised.kill()
    eventually(lambda: not any(Path(f"/proc/{pid}").exists() for pid in last))
    with socket.create_server(("127.0.0.1", port or 0)):
        pass


def test_a_sqlite_file_has_one_process(tmp_path: Path) -> None:
    refused = trmon("serve", "--port", 0, "--replicas", 2, "--data-dir", tmp_path)
    assert refused.returncode == 1
    assert "a SQLite file has one service; for several set TRMON_DATABASE_URL=postgresql://" in refused.stderr


SUPERVISOR = """
import sys
from trmon.fleet.supervisor import ChildProcess, Supervisor

command = [sys.executable, "-c", {child!r}]
Supervisor([ChildProcess(command, stdout=-1, **{options})], ready_seconds=0.1).run(ready="ready")
"""


def supervise(child: str, **options: object) -> subprocess.Popen[str]:
    """Start a supervisor of one Python process with some code."""
    command = [sys.executable, "-c", SUPERVISOR.format(child=child, options=options)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_a_signal_during_the_start_ends_the_supervisor() -> None:
    with supervise("import time; time.sleep(60)") as supervisor:
        eventually(children_of(supervisor).read_text)
        supervisor.terminate()
        assert supervisor.wait(20) == 0


def test_at_the_start_a_slow_process_is_waited_for() -> None:
    with supervise("import time; time.sleep(0.5); print('trmon_url=', flush=True); time.sleep(60)") as supervisor:
        assert supervisor.stdout is not None
        assert any("process_starts_slowly" in line for line in supervisor.stdout)
        assert any(line == "ready\n" for line in supervisor.stdout)
        supervisor.terminate()
        assert supervisor.wait(20) == 0


def test_a_process_that_exits_at_the_start_ends_the_supervisor() -> None:
    with supervise("import time; time.sleep(0.5); raise SystemExit(1)") as supervisor:
        said, wrong = supervisor.communicate(timeout=20)
        assert "a process did not start" in wrong
        assert "ready\n" not in said
        assert supervisor.returncode == 1


IGNORES_SIGTERM = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print('trmon_ready', flush=True)
time.sleep(60)
"""


def child_of(code: str) -> ChildProcess:
    """Return a started Python process with a piped stdout."""
    child = ChildProcess([sys.executable, "-c", code], stdout=subprocess.PIPE)
    child.start()
    return child


def test_no_line_is_read_after_the_timeout_or_once_it_is_not_wanted() -> None:
    child = child_of("import time; time.sleep(60)")
    assert child.read_line(timeout_seconds=0.0) is None
    assert child.read_line(timeout_seconds=30.0, is_wanted=lambda: False) is None
    child.stop()


def test_a_process_that_ignores_sigterm_is_killed() -> None:
    child = child_of(IGNORES_SIGTERM)
    assert child.read_line(timeout_seconds=30.0) == "trmon_ready\n"
    child.stop(timeout_seconds=0.2)
    assert child.status == -signal.SIGKILL


BEATS = """
import os, sys, time
print('trmon_ready', flush=True)
while True:
    os.write(int(sys.argv[-1]), b'.')
    time.sleep(0.1)
"""


def test_a_child_that_stops_beating_is_killed_and_started_again() -> None:
    with supervise(BEATS, beats=True, hung_seconds=1.0) as supervisor:
        assert supervisor.stdout is not None
        assert any(line == "ready\n" for line in supervisor.stdout)
        children = children_of(supervisor)
        pids = [int(children.read_text())]
        for _ in range(2):
            time.sleep(1.5)
            assert int(children.read_text()) == pids[-1], "a child that beats is left alone"
            os.kill(pids[-1], signal.SIGSTOP)
            eventually(lambda: int(children.read_text()) != pids[-1])
            pids.append(int(children.read_text()))
        supervisor.terminate()
        said, _ = supervisor.communicate(timeout=20)
    assert supervisor.returncode == 0
    assert len(set(pids)) == 3
    assert said.count("process_hung") == 2


Starting = Callable[[str], WorkerProcess]


@pytest.fixture
def starting(tmp_path: Path) -> Iterator[Starting]:
    """Return a function that starts a worker and does not wait for it; it ends with the test."""
    with ExitStack() as stack:

        def start(url: str) -> WorkerProcess:
            worker = WorkerProcess(url, log=tmp_path / "worker.log")
            stack.push(worker)
            return worker

        yield start


@pytest.mark.server("postgres")
def test_a_worker_waits_for_a_server_that_is_away(starting: Starting) -> None:
    with Postgres() as server:
        url = server.database()
        server.stop()
        worker = starting(url)
        eventually(lambda: worker.log.read_text().count("database_away"), lambda n: n >= 2)
        assert "Connection refused" in worker.log.read_text()
        assert worker.process.poll() is None
        server.start()
        assert worker.process.stdout is not None
        assert worker.process.stdout.readline().startswith("trmon_worker=")
        assert worker.stop() == 0
        assert "Traceback" not in worker.log.read_text()


@pytest.mark.server("postgres")
def test_a_worker_that_waits_ends_when_it_is_asked_to(starting: Starting) -> None:
    worker = starting("postgresql://trmon@127.0.0.1:9/trmon")
    eventually(worker.log.read_text, lambda text: "database_away" in text)
    assert worker.stop() == 1
    assert "Traceback" not in worker.log.read_text()


@pytest.mark.server("postgres")
def test_a_wrong_address_is_refused_at_once(starting: Starting, postgres_template: str) -> None:
    worker = starting(f"{postgres_template.rpartition('/')[0]}/no_such_database")
    assert worker.process.wait(60) == 1
    assert "does not exist" in worker.log.read_text()
    assert "database_away" not in worker.log.read_text()
