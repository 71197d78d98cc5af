"""A worker that starts while its PostgreSQL is away waits, says so, and begins once it answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.fixtures.fleet import WorkerProcess
from tests.fixtures.postgres import Postgres
from tests.fixtures.waiting import eventually

pytestmark = [pytest.mark.server("postgres"), pytest.mark.slow]
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


def test_a_worker_that_waits_ends_when_it_is_asked_to(starting: Starting) -> None:
    worker = starting("postgresql://trmon@127.0.0.1:9/trmon")
    eventually(worker.log.read_text, lambda text: "database_away" in text)
    assert worker.stop() == 1
    assert "Traceback" not in worker.log.read_text()


def test_a_wrong_address_is_refused_at_once(starting: Starting, postgres_template: str) -> None:
    worker = starting(f"{postgres_template.rpartition('/')[0]}/no_such_database")
    assert worker.process.wait(60) == 1
    assert "does not exist" in worker.log.read_text()
    assert "database_away" not in worker.log.read_text()
