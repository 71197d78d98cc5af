"""Workers over one PostgreSQL: each batch closes once and alerts once, even if a worker ends, dies or hangs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import sqlalchemy as sa

from tests.fixtures.fleet import WorkerProcess
from tests.fixtures.messages import columns
from tests.fixtures.receiver import WebhookServer
from tests.fixtures.service import ThreadedService
from tests.fixtures.trainer import send_step, train
from tests.fixtures.waiting import eventually
from trmon.domain.alerts.delivery import DeliveryState
from trmon.domain.identity import RunKey
from trmon.domain.ownership import SLOTS
from trmon.notify.webhook import KEY_HEADER
from trmon.store.database import engines_of
from trmon.store.database.engines import Engines
from trmon.store.schema import tables

pytestmark = pytest.mark.server("postgres")

RUNS = [RunKey("math", f"run-{i}") for i in range(6)]
LEASE = {"lease_seconds": "2"}


@pytest.fixture
def api(postgres_url: str, tmp_path: Path) -> Iterator[httpx.Client]:
    """A client of an API process without a worker."""
    service = ThreadedService(tmp_path, database_url=postgres_url)
    with service.client() as client:
        yield client
    service.stop()


@pytest.fixture
def engines(postgres_url: str) -> Iterator[Engines]:
    opened = engines_of(postgres_url)
    yield opened
    opened.dispose()


@pytest.fixture
def workers(postgres_url: str, tmp_path: Path, pager: WebhookServer) -> Iterator[tuple[WorkerProcess, WorkerProcess]]:
    given = LEASE | {"webhook_url": pager.url, "webhook_allow_hosts": "127.0.0.1"}
    one, other = (WorkerProcess(postgres_url, log=tmp_path / f"worker-{i}.log", **given) for i in range(2))
    with one, other:
        yield one, other


def read(engines: Engines, statement: sa.Select[Any]) -> list[Any]:
    with engines.reader.connect() as connection:
        return list(connection.execute(statement))


def shares(engines: Engines) -> list[int]:
    """Return how many slots each holder has."""
    lease = tables.lease.c
    held = sa.select(lease.holder, sa.func.count()).where(lease.holder.is_not(None)).group_by(lease.holder)
    return sorted(row[1] for row in read(engines, held))


def closed(engines: Engines) -> Counter[int]:
    """Return how many batches of each run are closed."""
    return Counter(row[0] for row in read(engines, sa.select(tables.batch.c.run_id)))


def send_steps(api: httpx.Client, steps: range) -> None:
    """Send steps of every run with invalid log-probs, so that alerts fire."""
    for step in steps:
        for key in RUNS:
            send_step(api, key, step=step, content=columns(seed=step, n_invalid=[8.0] * 4))


def assert_each_once(engines: Engines, *, n_steps: int) -> None:
    ordinals: dict[int, list[int]] = {}
    for run_id, ordinal in read(engines, sa.select(tables.batch.c.run_id, tables.batch.c.ordinal)):
        ordinals.setdefault(run_id, []).append(ordinal)
    assert [sorted(found) for found in ordinals.values()] == [list(range(1, n_steps + 1))] * len(RUNS)
    alerts = [
        (row.run_id, str(row.data))
        for row in read(engines, sa.select(tables.event).where(tables.event.c.kind == "alert"))
    ]
    assert alerts
    assert len(alerts) == len(set(alerts))
    batches = [
        (row.run_id, row.data["step"])
        for row in read(engines, sa.select(tables.event).where(tables.event.c.kind == "batch"))
    ]
    assert Counter(batches).most_common(1)[0][1] == 1


def test_a_worker_that_resumes_after_its_leases_expired_writes_nothing_and_one_that_ends_hands_over(
    api: httpx.Client, engines: Engines, workers: tuple[WorkerProcess, WorkerProcess], pager: WebhookServer
) -> None:
    eventually(lambda: shares(engines), lambda held: held == [SLOTS // 2] * 2)
    send_steps(api, range(3))
    workers[0].freeze()
    send_steps(api, range(3, 5))
    eventually(lambda: shares(engines), lambda held: held == [SLOTS])
    workers[0].thaw()
    eventually(lambda: shares(engines), lambda held: held == [SLOTS // 2] * 2)
    send_steps(api, range(5, 6))
    eventually(lambda: closed(engines), lambda found: sum(found.values()) == 5 * len(RUNS))
    assert workers[0].stop() == 0
    eventually(lambda: shares(engines), lambda held: held in ([SLOTS // 2], [SLOTS]))
    send_steps(api, range(6, 8))
    eventually(lambda: closed(engines), lambda found: sum(found.values()) == 7 * len(RUNS))
    assert_each_once(engines, n_steps=7)
    waiting = sa.select(sa.func.count()).where(tables.delivery.c.state == DeliveryState.DUE.value)
    eventually(lambda: read(engines, waiting), lambda found: found == [(0,)])
    keys = [posted.headers[KEY_HEADER] for posted in pager.posted]
    assert keys
    assert len(keys) == len(set(keys))
    train(api, steps=range(3))
    shown = eventually(lambda: api.get("/metrics").text, lambda text: 'trmon_step{project="math",run="grpo"} 2' in text)
    assert 'trmon_run_state{project="math",run="grpo",state="finished"} 1' in shown
    eventually(lambda: api.get("/readyz").status_code, (200).__eq__)
