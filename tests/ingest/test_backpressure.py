"""A database that answers nothing: what does not fit is told to come again, and nothing else suffers."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from benchmarks.load.connection import Answer, Connection
from benchmarks.load.workload import PROJECT, Workload
from tests.fixtures.running_service import Serve
from tests.fixtures.service import ThreadedService
from tests.fixtures.waiting import eventually
from trmon.api.http.memory_budget import MemoryBudget
from trmon.domain.model.errors import Overloaded
from trmon_client.core import wire

WORKLOAD = Workload(n_ranks=1)
N_REPORTS = 40
ROOM_BYTES = 8 * max(len(WORKLOAD.report(0, step=step, rank=0)) for step in range(N_REPORTS))


@contextmanager
def locked(service: ThreadedService) -> Iterator[None]:
    """Hold the database's write lock from another connection, as a process would that hangs."""
    [path] = service.data_dir.glob("*.sqlite")
    with sqlite3.connect(path, isolation_level=None) as connection:
        connection.execute("BEGIN IMMEDIATE")
        yield
        connection.execute("ROLLBACK")


def post(service: ThreadedService, step: int) -> Answer:
    """Send one report over a connection of its own."""
    connection = Connection(service.url)
    path = f"/api/v1/runs/{PROJECT}/{WORKLOAD.run(0)}/reports"
    answer = connection.post(path, WORKLOAD.report(0, step=step, rank=0), content_type=wire.MSGPACK)
    connection.close()
    return answer


def read(service: ThreadedService, path: str) -> int:
    """Return the status of a page."""
    with service.client() as client:
        return client.get(path).status_code


def test_what_does_not_fit_is_told_to_come_again_while_the_database_hangs_and_what_fits_is_stored(serve: Serve) -> None:
    service = serve(max_held_bytes=ROOM_BYTES)
    assert post(service, 0).status == 200
    with ThreadPoolExecutor(N_REPORTS) as pool:
        with locked(service):
            futures = [pool.submit(post, service, step) for step in range(1, N_REPORTS)]
            eventually(lambda: sum(future.done() for future in futures) >= N_REPORTS - 9)
            alive = read(service, "/healthz")
        answers = [future.result() for future in futures]
    assert alive == 200
    refused = [answer for answer in answers if answer.status == 429]
    assert all(answer.retry_after_seconds >= 1 for answer in refused)
    assert sum(answer.status == 200 for answer in answers) == len(answers) - len(refused) == 8
    assert post(service, N_REPORTS).status == 200


def test_reads_go_on_while_the_database_takes_no_writes(serve: Serve) -> None:
    service = serve()
    assert post(service, 0).status == 200
    with locked(service):
        for path in (f"/api/v1/runs/{PROJECT}/{WORKLOAD.run(0)}", "/api/v1/runs", "/metrics", "/readyz"):
            assert read(service, path) == 200


def test_room_is_refused_by_what_is_held_and_given_back() -> None:
    held = MemoryBudget(100)
    held.take(60)
    with pytest.raises(Overloaded, match="60 bytes of requests wait"):
        held.take(41)
    held.take(40)
    held.let_go(60)
    held.take(60)


def test_a_body_larger_than_the_room_fits_where_nothing_else_is() -> None:
    held = MemoryBudget(100)
    held.take(500)
    with pytest.raises(Overloaded):
        held.take(1)
