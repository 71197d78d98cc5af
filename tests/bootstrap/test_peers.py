"""Processes over one PostgreSQL and one Redis see each other's commits at once, and by polling without Redis."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import httpx
import pytest

from tests.fixtures.fleet import WorkerProcess
from tests.fixtures.messages import ORIGIN, report
from tests.fixtures.redis import Redis
from tests.fixtures.service import ThreadedService
from tests.fixtures.trainer import MATH, send, send_step, train
from tests.fixtures.waiting import eventually
from tests.store.builders import alert, append, report_intake
from trmon.bootstrap.background_services import connect_peers
from trmon.config.settings import Settings
from trmon.domain.pipeline.publish import Frontier, RunUpdate
from trmon.fleet import changes
from trmon.fleet.changes import PeriodicThread
from trmon.metrics.counters import Counters
from trmon.store import Store
from trmon_client.core import wire

pytestmark = pytest.mark.server("postgres", "redis-server")

RUN = f"/api/v1/runs/{MATH}"
HOUR_SECONDS = 3600.0


@pytest.fixture
def server() -> Iterator[Redis]:
    with Redis() as server:
        yield server


@pytest.fixture
def apis(server: Redis, postgres_url: str, tmp_path: Path) -> Iterator[tuple[httpx.Client, httpx.Client]]:
    """Clients of two API processes with one worker."""
    given = {"redis_url": server.url, "lease_seconds": "2", "grace_seconds": "1"}
    with ExitStack() as stack:
        services = []
        for i in range(2):
            service = ThreadedService(tmp_path / f"api-{i}", database_url=postgres_url, redis_url=server.url)
            stack.callback(service.stop)
            services.append(stack.enter_context(service.client()))
        stack.enter_context(WorkerProcess(postgres_url, log=tmp_path / "worker.log", **given))
        yield services[0], services[1]


def metric(api: httpx.Client, name: str) -> float:
    [line] = [line for line in api.get("/metrics").text.splitlines() if line.startswith(f"{name} ")]
    return float(line.split()[1])


def closed_steps(api: httpx.Client) -> list[int]:
    """Return the steps of the run whose batches are closed, oldest first."""
    found = api.get(f"{RUN}/batches", params={"limit": 500})
    return [batch["step"] for batch in reversed(found.json()["items"])] if found.status_code == 200 else []


class Follower:
    """Streams the events of the run from the first one until the service ends; `steps` counts the batches by step."""

    def __init__(self, api: httpx.Client) -> None:
        self.steps: Counter[int] = Counter()
        self._url = api.base_url
        self._connected = threading.Event()
        threading.Thread(target=self._follow, daemon=True).start()
        assert self._connected.wait(30)

    def _follow(self) -> None:
        with (
            suppress(httpx.HTTPError),
            httpx.Client(base_url=self._url, timeout=None) as client,
            client.stream("GET", "/api/v1/events", params={"run": str(MATH)}, headers={"Last-Event-ID": "0"}) as stream,
        ):
            kind = ""
            for line in stream.iter_lines():
                self._connected.set()
                name, _, value = line.partition(": ")
                if name == "event":
                    kind = value
                elif name == "data" and kind == "batch":
                    self.steps[json.loads(value)["step"]] += 1


def finish(api: httpx.Client, *, step: int) -> None:
    """Finish the run after a step, and wait until a worker has read it."""
    send(api, MATH, wire.Finish(**ORIGIN, sequence=1, finished=[wire.ChunkCount(step, None, 1)]))
    eventually(lambda: api.get(RUN).json()["state"], lambda state: state == "finished")


def test_a_commit_wakes_a_poller_with_an_interval_of_an_hour(server: Redis, postgres_url: str) -> None:
    settings = Settings(database_url=postgres_url, redis_url=server.url)
    polled = threading.Semaphore(0)
    poller = PeriodicThread("events", polled.release, every_seconds=HOUR_SECONDS)
    with ExitStack() as stack:
        stores = [Store.open(postgres_url) for _ in range(2)]
        for store in stores:
            stack.callback(store.close)
        here = connect_peers(settings, stores[0], counters=Counters(), on_notice=lambda _: None)
        there = connect_peers(settings, stores[1], counters=Counters(), on_notice=lambda _: poller.wake())
        # The first poll is its own; the second follows the subscription, the third the commit.
        for part in (poller, here, there):
            assert part is not None
            part.start()
            stack.callback(part.close)
            if part is poller:
                assert polled.acquire(timeout=30)
        assert polled.acquire(timeout=30)
        append(stores[0], report_intake())
        assert polled.acquire(timeout=30)


def test_without_redis_or_with_sqlite_there_are_no_peers(postgres_url: str, server: Redis, tmp_path: Path) -> None:
    for url, redis_url in ((postgres_url, None), (f"sqlite:///{tmp_path}/trmon.db", server.url)):
        store = Store.open(url)
        settings = Settings(database_url=url, redis_url=redis_url)
        assert connect_peers(settings, store, counters=Counters(), on_notice=lambda _: None) is None
        store.close()


def test_reports_and_edits_reach_the_streams_of_other_processes_through_each_outage_of_redis(
    server: Redis, apis: tuple[httpx.Client, httpx.Client]
) -> None:
    one, other = apis
    for api in apis:
        eventually(lambda api=api: metric(api, "trmon_redis_up") == 1)
    train(one, steps=range(1), end=False)
    follower = Follower(other)
    changes_at = {5: server.kill, 10: server.start, 20: server.hold, 25: server.go_on}
    for step in range(1, 30):
        if step in changes_at:
            changes_at[step]()
        send_step(apis[step % 2], MATH, step=step)
        if step == 15:
            one.put(f"{RUN}/policy", json={"policy": "geo_mask", "reason": "try"}).raise_for_status()
            eventually(lambda: other.get(f"{RUN}/policy").json()["name"] == "geo_mask")
    finish(one, step=29)
    eventually(lambda: follower.steps, lambda steps: steps == Counter(range(30)))
    assert closed_steps(other) == list(range(30))
    for api in apis:
        eventually(lambda api=api: metric(api, "trmon_redis_up") == 1)


def test_an_acknowledgement_reaches_a_stream_of_the_same_process_at_once(
    server: Redis, postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(changes, "NOTIFIED_POLL_SECONDS", HOUR_SECONDS)
    service = ThreadedService(tmp_path, database_url=postgres_url, redis_url=server.url)
    with service.client() as api:
        eventually(lambda: metric(api, "trmon_redis_up") == 1)
        send(api, MATH, report())
        firing, store = alert(run_id=1), service.app.state.components.store
        store.run_log.commit([RunUpdate(run_id=1, frontier=Frontier(), alerts=(firing,))])[0].result(30)
        with api.stream("GET", "/api/v1/events", timeout=8.0) as stream:
            lines = stream.iter_lines()
            next(lines)
            api.post(f"/api/v1/alerts/{firing.identity}/ack", json={}).raise_for_status()
            assert any(line == "event: ack" for line in lines)
    service.stop()
