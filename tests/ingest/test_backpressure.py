"""A database that hangs: requests above the memory limit get 429, and everything else keeps working."""

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
BUDGET_BYTES = 8 * max(len(WORKLOAD.report(0, step=step, rank=0)) for step in range(N_REPORTS))


@contextmanager
def locked(service: ThreadedService) -> Iterator[None]:
    """Hold the database's write lock from another connection, as a hanging process would."""
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
    """Return the status of a GET request."""
    with service.client() as client:
        return client.get(path).status_code


def test_requests_above_the_memory_limit_get_429_while_the_database_hangs_and_the_others_are_stored(
    serve: Serve,
) -> None:
    service = serve(max_held_bytes=BUDGET_BYTES)
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


def test_reads_work_while_the_database_accepts_no_writes(serve: Serve) -> None:
    service = serve()
    assert post(service, 0).status == 200
    with locked(service):
        for path in (f"/api/v1/runs/{PROJECT}/{WORKLOAD.run(0)}", "/api/v1/runs", "/metrics", "/readyz"):
            assert read(service, path) == 200


def test_a_memory_budget_refuses_bytes_above_its_limit_until_others_are_released() -> None:
    budget = MemoryBudget(100)
    budget.reserve(60)
    with pytest.raises(Overloaded, match="60 bytes of requests wait"):
        budget.reserve(41)
    budget.reserve(40)
    budget.release(60)
    budget.reserve(60)


def test_a_body_larger_than_the_budget_is_accepted_if_nothing_else_is_held() -> None:
    budget = MemoryBudget(100)
    budget.reserve(500)
    with pytest.raises(Overloaded):
        budget.reserve(1)
