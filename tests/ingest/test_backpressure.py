"""A database that hangs: requests above the memory limit get 429, and everything else keeps working."""

from __future__ import annotations

import socket
import sqlite3
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress

import httpx
import pytest

from benchmarks.load.connection import Answer, Connection
from benchmarks.load.workload import PROJECT, Workload
from tests.fixtures.running_service import Serve, bearer, make_token
from tests.fixtures.service import ThreadedService
from tests.fixtures.waiting import eventually
from trmon.domain.access import Scope
from trmon.domain.errors import Overloaded
from trmon.ingest.body_cost import MemoryBudget
from trmon_client.core import wire

WORKLOAD = Workload(n_ranks=1)
RUN = f"/api/v1/runs/{PROJECT}/{WORKLOAD.run(0)}"
N_REPORTS = 40
BUDGET_BYTES = 16 * max(len(WORKLOAD.report(0, step=step, rank=0)) for step in range(N_REPORTS))


@contextmanager
def locked(service: ThreadedService) -> Iterator[None]:
    """Hold the database's write lock from another connection, as a hanging process would."""
    [path] = service.data_dir.glob("*.sqlite")
    with sqlite3.connect(path, isolation_level=None) as connection:
        connection.execute("BEGIN IMMEDIATE")
        yield
        connection.execute("ROLLBACK")


def post(service: ThreadedService, step: int) -> Answer:
    """Send one report over a separate connection."""
    return post_body(service, WORKLOAD.report(0, step=step, rank=0))


def post_body(service: ThreadedService, body: bytes) -> Answer:
    connection = Connection(service.url)
    answer = connection.post(f"{RUN}/reports", body, content_type=wire.MSGPACK)
    connection.close()
    return answer


def read(service: ThreadedService, path: str) -> int:
    with service.client() as client:
        return client.get(path).status_code


def test_above_the_memory_limit_requests_get_429_and_the_others_are_stored(serve: Serve) -> None:
    service = serve(max_held_bytes=BUDGET_BYTES)
    assert post(service, 0).status == 200
    # Made before: the service gives a locked database five seconds.
    bodies = [WORKLOAD.report(0, step=step, rank=0) for step in range(1, N_REPORTS)]
    with ThreadPoolExecutor(N_REPORTS) as pool:
        with locked(service):
            futures = [pool.submit(post_body, service, body) for body in bodies]
            eventually(lambda: sum(future.done() for future in futures) >= N_REPORTS - 9)
            statuses = [read(service, path) for path in ("/healthz", "/readyz", "/metrics", "/api/v1/runs", RUN)]
        answers = [future.result() for future in futures]
    assert statuses == [200] * 5, "reads work while the database accepts no writes"
    refused = [answer for answer in answers if answer.status == 429]
    assert all(answer.retry_after_seconds >= 1 for answer in refused)
    assert sum(answer.status == 200 for answer in answers) == len(answers) - len(refused) == 8
    assert post(service, N_REPORTS).status == 200


def test_stalled_uploads_of_one_token_do_not_turn_others_away(serve: Serve) -> None:
    service = serve(max_held_bytes=BUDGET_BYTES)
    with service.client() as client:
        client.headers.update(bearer(make_token(client, "root", Scope.ADMIN)))
        stalling, training = (make_token(client, name, Scope.INGEST) for name in ("stalling", "training"))
        with stalled_uploads(service, token=stalling):
            report = WORKLOAD.report(0, step=0, rank=0)
            headers = {**bearer(training), "Content-Type": wire.MSGPACK}
            path = f"{RUN}/reports"
            assert client.post(path, content=report, headers=headers).status_code == 200
            refused = client.post(path, content=report, headers=headers | bearer(stalling))
            assert refused.status_code == 429
            assert "of this caller's requests wait" in refused.json()["detail"]


@contextmanager
def stalled_uploads(service: ThreadedService, *, token: str) -> Iterator[None]:
    """Hold uploads that stop before their last byte, as many as the service accepts of a token."""
    url, n_bytes = httpx.URL(service.url), BUDGET_BYTES // 8
    head = f"POST /api/v1/reports HTTP/1.1\r\nHost: {url.netloc.decode()}\r\nAuthorization: Bearer {token}\r\n"
    request = f"{head}Content-Length: {n_bytes + 1}\r\n\r\n".encode() + bytes(n_bytes)
    with ExitStack() as lines:
        for _ in range(9):
            line = lines.enter_context(socket.create_connection((url.host, url.port or 0)))
            line.sendall(request)
            line.settimeout(0.5)
            with suppress(TimeoutError):
                assert line.recv(64).startswith(b"HTTP/1.1 429 ")
                break
        else:
            pytest.fail("the service held every upload")
        yield


def test_a_memory_budget_refuses_a_caller_who_would_hold_more_than_stays_free() -> None:
    budget = MemoryBudget(120)
    budget.reserve(60, caller="a")
    with pytest.raises(Overloaded, match="60 bytes of this caller's requests wait, and 60 of 120 are free"):
        budget.reserve(1, caller="a")
    with pytest.raises(Overloaded):
        budget.reserve(31, caller="b")
    budget.reserve(30, caller="b")
    budget.reserve(15, caller="c")
    budget.release(60, caller="a")
    budget.reserve(22, caller="c")


def test_a_body_larger_than_the_budget_is_accepted_if_nothing_else_is_held() -> None:
    budget = MemoryBudget(100)
    budget.reserve(300, caller="a")
    budget.reserve(200, caller="a", already_bytes=300)
    for caller in ("a", "b"):
        with pytest.raises(Overloaded):
            budget.reserve(1, caller=caller)
