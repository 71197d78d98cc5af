"""Processes over one PostgreSQL and one Redis: what one commits the others see at once, and later without Redis."""

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
from trmon.background import poller
from trmon.background.poller import Poller
from trmon.config.settings import Settings
from trmon.domain.state.run_update import Frontier, RunUpdate
from trmon.hosts.fleet.peer_notifier import peer_notifier_of
from trmon.metrics.counters import Counters
from trmon.store import Store
from trmon_client.core import wire

pytestmark = pytest.mark.server("postgres", "redis-server")

RUN = f"/api/v1/runs/{MATH}"
HOUR_SECONDS = 3600.0


@pytest.fixture
def server() -> Iterator[Redis]:
    """A running Redis."""
    with Redis() as server:
        yield server


@pytest.fixture
def doors(server: Redis, postgres_url: str, tmp_path: Path) -> Iterator[tuple[httpx.Client, httpx.Client]]:
    """Clients of two API processes beside a worker."""
    given = {"redis_url": server.url, "lease_seconds": "2", "grace_seconds": "1"}
    with ExitStack() as stack:
        services = []
        for i in range(2):
            service = ThreadedService(tmp_path / f"door-{i}", database_url=postgres_url, redis_url=server.url)
            stack.callback(service.stop)
            services.append(stack.enter_context(service.client()))
        stack.enter_context(WorkerProcess(postgres_url, log=tmp_path / "worker.log", **given))
        yield services[0], services[1]


def metric(authenticator: httpx.Client, name: str) -> float:
    [line] = [line for line in authenticator.get("/metrics").text.splitlines() if line.startswith(f"{name} ")]
    return float(line.split()[1])


def closed_steps(authenticator: httpx.Client) -> list[int]:
    """Return the steps of the run whose batches are closed, oldest first."""
    found = authenticator.get(f"{RUN}/batches", params={"limit": 500})
    return [batch["step"] for batch in reversed(found.json()["items"])] if found.status_code == 200 else []


class Follower:
    """Follows the events of the run from the first on, until the service ends; `steps`: of the batches it heard of."""

    def __init__(self, authenticator: httpx.Client) -> None:
        self.steps: Counter[int] = Counter()
        self._url = authenticator.base_url
        self._begun = threading.Event()
        threading.Thread(target=self._follow, daemon=True).start()
        assert self._begun.wait(30)

    def _follow(self) -> None:
        with (
            suppress(httpx.HTTPError),
            httpx.Client(base_url=self._url, timeout=None) as client,
            client.stream("GET", "/api/v1/events", params={"run": str(MATH)}, headers={"Last-Event-ID": "0"}) as stream,
        ):
            kind = ""
            for line in stream.iter_lines():
                self._begun.set()
                name, _, value = line.partition(": ")
                if name == "event":
                    kind = value
                elif name == "data" and kind == "batch":
                    self.steps[json.loads(value)["step"]] += 1


def finish(authenticator: httpx.Client, *, step: int) -> None:
    """End the run after a step, and wait until a worker has."""
    send(authenticator, MATH, wire.Finish(**ORIGIN, sequence=1, finished=[wire.ChunkCount(step, None, 1)]))
    eventually(lambda: authenticator.get(RUN).json()["state"], lambda state: state == "finished")


def test_a_commit_wakes_a_process_that_would_not_look_for_an_hour(server: Redis, postgres_url: str) -> None:
    settings = Settings(database_url=postgres_url, redis_url=server.url)
    looked = threading.Semaphore(0)
    poller = Poller("tail", looked.release, every_seconds=HOUR_SECONDS)
    with ExitStack() as stack:
        stores = [Store.open(postgres_url) for _ in range(2)]
        for store in stores:
            stack.callback(store.close)
        here = peer_notifier_of(settings, stores[0], counters=Counters(), heard=lambda _: None)
        there = peer_notifier_of(settings, stores[1], counters=Counters(), heard=lambda _: poller.wake())
        for part in (poller, here, there):
            assert part is not None
            part.start()
            stack.callback(part.close)
        # Its first look is its own; the second comes when it begins to hear, the third with the commit.
        assert looked.acquire(timeout=30)
        assert looked.acquire(timeout=30)
        append(stores[0], report_intake())
        assert looked.acquire(timeout=30)


def test_without_redis_or_alone_there_are_no_neighbours(postgres_url: str, server: Redis, tmp_path: Path) -> None:
    for url, redis_url in ((postgres_url, None), (f"sqlite:///{tmp_path}/trmon.db", server.url)):
        store = Store.open(url)
        settings = Settings(database_url=url, redis_url=redis_url)
        assert peer_notifier_of(settings, store, counters=Counters(), heard=lambda _: None) is None
        store.close()


def test_every_process_hears_of_what_comes_through_another(doors: tuple[httpx.Client, httpx.Client]) -> None:
    one, other = doors
    for authenticator in doors:
        eventually(lambda authenticator=authenticator: metric(authenticator, "trmon_redis_up") == 1)
    train(one, steps=range(1), end=False)
    follower = Follower(other)
    for step in range(1, 6):
        send_step(doors[step % 2], MATH, step=step)
    one.put(f"{RUN}/policy", json={"policy": "geo_mask", "reason": "try"}).raise_for_status()
    eventually(lambda: other.get(f"{RUN}/policy").json()["name"] == "geo_mask")
    finish(one, step=5)
    eventually(lambda: follower.steps, lambda steps: steps == Counter(range(6)))


@pytest.mark.parametrize("trouble", ["killed", "hanging"])
def test_redis_in_trouble_under_load_loses_nothing(
    server: Redis, doors: tuple[httpx.Client, httpx.Client], trouble: str
) -> None:
    one, other = doors
    train(one, steps=range(1), end=False)
    follower = Follower(other)
    for step in range(1, 30):
        if step == 10:
            server.kill() if trouble == "killed" else server.hold()
        if step == 20:
            server.start() if trouble == "killed" else server.go_on()
        send_step(doors[step % 2], MATH, step=step)
    finish(one, step=29)
    eventually(lambda: follower.steps, lambda steps: steps == Counter(range(30)))
    assert closed_steps(other) == list(range(30))
    for authenticator in doors:
        eventually(lambda authenticator=authenticator: metric(authenticator, "trmon_redis_up") == 1)


def test_an_acknowledgement_is_heard_of_at_once_by_who_follows_the_same_process(
    server: Redis, postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(poller, "TOLD_POLL_SECONDS", HOUR_SECONDS)
    service = ThreadedService(tmp_path, database_url=postgres_url, redis_url=server.url)
    with service.client() as authenticator:
        eventually(lambda: metric(authenticator, "trmon_redis_up") == 1)
        send(authenticator, MATH, report())
        firing, store = alert(run_id=1), service.app.state.components.store
        store.run_log.commit([RunUpdate(run_id=1, frontier=Frontier(), alerts=(firing,))])[0].result(30)
        with authenticator.stream("GET", "/api/v1/events", timeout=8.0) as stream:
            heard = stream.iter_lines()
            next(heard)
            authenticator.post(f"/api/v1/alerts/{firing.identity}/ack", json={}).raise_for_status()
            assert any(line == "event: ack" for line in heard)
    service.stop()
