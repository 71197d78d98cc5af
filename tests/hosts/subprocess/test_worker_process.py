"""The worker in a process of its own: it dies, hangs and is told to leave, and no batch is lost or closed twice."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from benchmarks.load.gears import Apart
from tests.fixtures.sending import Sending
from tests.fixtures.service import ServiceProcess
from tests.fixtures.waiting import eventually
from trmon.domain.model.identity import RunKey
from trmon.store import ProcessRole, Store

KEY = RunKey("math", "apart")
RUN = f"/api/v1/runs/{KEY.project}/{KEY.run}"


@pytest.fixture
def client(process: ServiceProcess) -> Iterator[httpx.Client]:
    """A client of the service."""
    with process.client() as client:
        yield client


def batches(client: httpx.Client) -> list[dict[str, Any]]:
    """Return the closed batches, oldest first."""
    found: list[dict[str, Any]] = []
    page: dict[str, Any] = {"next": None}
    while not found or page["next"] is not None:
        after = {} if page["next"] is None else {"after": page["next"]}
        answer = client.get(f"{RUN}/batches", params={"limit": 1000, **after})
        if answer.status_code != 200 or not (page := answer.json())["items"]:
            break
        found += page["items"]
    return list(reversed(found))


def closed(client: httpx.Client, *, at_least: int) -> list[int]:
    """Wait for so many batches and return their steps."""
    return eventually(lambda: [row["step"] for row in batches(client)], lambda steps: len(steps) >= at_least)


@contextmanager
def store_of(process: ServiceProcess) -> Iterator[Store]:
    """What lies in the database of a service that has ended."""
    store = Store.open(f"sqlite:///{process.data_dir / 'trmon.sqlite'}", role=ProcessRole.READER)
    yield store
    store.close()


def test_what_the_worker_finds_is_shown_and_counted(process: ServiceProcess, client: httpx.Client) -> None:
    with Sending(process.url, KEY):
        closed(client, at_least=3)
    shown = eventually(lambda: client.get("/metrics").text, lambda text: "trmon_step{" in text)
    assert f'trmon_kl_k3{{project="{KEY.project}",run="{KEY.run}"}}' in shown
    counted = next(line for line in shown.splitlines() if line.startswith("trmon_close_lag_seconds_count"))
    assert float(counted.split()[1]) >= 3
    assert client.get("/readyz").status_code == 200


def test_it_hears_what_people_change(process: ServiceProcess, client: httpx.Client) -> None:
    with Sending(process.url, KEY):
        closed(client, at_least=2)
        assert client.put(f"{RUN}/policy", json={"policy": "geo_mask"}).status_code == 200
        eventually(lambda: client.get("/metrics").text, lambda text: 'policy="geo_mask"' in text)
        assert client.patch(RUN, json={"owner": "ana"}).status_code == 200
        eventually(lambda: client.get(RUN).json()["owner"], lambda owner: owner == "ana")
    assert process.process.poll() is None


def test_one_that_dies_is_replaced_and_every_batch_is_closed_once(
    process: ServiceProcess, client: httpx.Client
) -> None:
    worker = Apart(process)
    with Sending(process.url, KEY) as sending:
        for n in range(1, 3):
            closed(client, at_least=10 * n)
            worker.kill()
            worker.start()
        eventually(lambda: len(sending.acknowledged) > 30)
    steps = closed(client, at_least=len(sending.acknowledged) - 1)
    assert steps == list(range(len(steps)))
    assert set(sending.answers) == {200}, "the door never closed"
    assert eventually(lambda: client.get("/readyz").status_code, lambda status: status == 200)


def test_one_that_hangs_keeps_no_trainer_waiting_and_catches_up(process: ServiceProcess, client: httpx.Client) -> None:
    with Sending(process.url, KEY) as sending:
        closed(client, at_least=2)
        hanging = Apart(process).pid
        os.kill(hanging, signal.SIGSTOP)
        n = len(sending.acknowledged)
        eventually(lambda: len(sending.acknowledged) > n + 200)
        n_closed = len(batches(client))
        assert n_closed <= n + 1
        os.kill(hanging, signal.SIGCONT)
    steps = closed(client, at_least=len(sending.acknowledged) - 1)
    assert steps == list(range(len(steps)))
    assert not any(row["revised"] for row in batches(client))


def test_told_to_end_the_service_lets_it_bring_every_run_to_rest(process: ServiceProcess, client: httpx.Client) -> None:
    with Sending(process.url, KEY) as sending:
        closed(client, at_least=5)
    worker = Apart(process).pid
    assert process.stop() in (0, -signal.SIGTERM)
    assert not Path(f"/proc/{worker}").exists()
    with store_of(process) as store:
        (run,) = store.run_log.unfinished_runs()
        reached = store.run_log.reached(run.id)
    assert reached.checkpoint is not None
    assert reached.checkpoint.ordinal == len(sending.acknowledged) - 1


def test_a_service_that_is_killed_takes_it_along(process: ServiceProcess) -> None:
    worker = Apart(process).pid
    process.kill()
    eventually(lambda: not Path(f"/proc/{worker}").exists())


def test_a_signal_to_the_whole_group_ends_it_in_order(process: ServiceProcess, client: httpx.Client) -> None:
    """A terminal or a process manager tells every process at once; the worker leaves when the service says so."""
    with Sending(process.url, KEY) as sending:
        closed(client, at_least=5)
    os.kill(Apart(process).pid, signal.SIGTERM)
    assert process.stop() in (0, -signal.SIGTERM)
    with store_of(process) as store:
        (run,) = store.run_log.unfinished_runs()
        assert len(store.run_log.batches_after(run.id, 0, limit=10_000)) == len(sending.acknowledged) - 1
