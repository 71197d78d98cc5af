"""A database outage: the service stays up, refuses requests, recovers by itself and loses no report."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.fixtures.postgres import Postgres
from tests.fixtures.sending import Sending
from tests.fixtures.service import ThreadedService
from tests.fixtures.waiting import eventually
from tests.store.builders import stored_reports
from trmon.domain.identity import RunKey
from trmon.store import Store

pytestmark = pytest.mark.server("postgres")

KEY = RunKey("math", "grpo")


@pytest.fixture(scope="module")
def server() -> Iterator[Postgres]:
    """A PostgreSQL server that syncs to disk."""
    with Postgres(durable=True) as started:
        yield started


def test_acknowledged_reports_survive_outages_and_are_stored_once(server: Postgres, tmp_path: Path) -> None:
    url = server.database()
    service = ThreadedService(tmp_path, database_url=url)
    with Sending(service.url, KEY) as sending, service.client() as client:
        eventually(lambda: len(sending.acknowledged) > 20)
        for end in (server.stop, server.kill):
            n_refused = sending.answers[503] + sending.answers[429]
            end()
            eventually(lambda n=n_refused: sending.answers[503] + sending.answers[429] > n + 3)
            assert client.get("/healthz").status_code == 200
            assert client.get("/readyz").status_code == 503
            n = len(sending.acknowledged)
            server.start()
            eventually(lambda n=n: len(sending.acknowledged) > n + 20)
            assert eventually(lambda: client.get("/readyz").status_code, lambda status: status == 200)
    service.stop()
    store = Store.open(url)
    stored = [found.report.step for found in stored_reports(store, 1)]
    store.close()
    assert stored[: len(sending.acknowledged)] == list(range(len(sending.acknowledged)))
    assert len(stored) == len(set(stored))


def test_a_database_that_hangs_makes_the_service_unready_and_not_dead(server: Postgres, tmp_path: Path) -> None:
    service = ThreadedService(tmp_path, database_url=server.database())
    with service.client() as client:
        assert client.get("/readyz").status_code == 200
        server.freeze()
        answers: list[httpx.Response] = [client.get(path) for path in ("/readyz", "/healthz", "/readyz")]
        server.thaw()
        assert [answer.status_code for answer in answers] == [503, 200, 503]
        assert "does not answer within 2 s" in answers[0].json()["detail"]
        eventually(lambda: client.get("/readyz").status_code, lambda status: status == 200)
    service.stop()
