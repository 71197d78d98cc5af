"""The worker process dies, hangs and is shut down; no batch is lost or closed twice."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import httpx
import pytest

from benchmarks.load.deployments import EmbeddedWorker
from benchmarks.load.processes import family
from tests.fixtures.databases import prepare_database
from tests.fixtures.sending import Sending
from tests.fixtures.service import ServiceProcess
from tests.fixtures.waiting import eventually
from tests.worker.watched_run import next_report, receive, rows_of
from trmon.config.settings import Settings
from trmon.domain.identity import RunKey
from trmon.fleet.views import RunViewCache
from trmon.metrics.counters import Counters
from trmon.store import ProcessRole, Store
from trmon.worker.process import WorkerProcess

KEY = RunKey("math", "apart")
RUN = f"/api/v1/runs/{KEY.project}/{KEY.run}"


@pytest.fixture
def client(process: ServiceProcess) -> Iterator[httpx.Client]:
    with process.client() as client:
        yield client


def test_views_reach_the_service_edits_the_worker_and_a_shutdown_closes_every_batch(
    process: ServiceProcess, client: httpx.Client
) -> None:
    with Sending(process.url, KEY) as sending:
        eventually(lambda: client.get(f"{RUN}/batches").json().get("items", []), lambda items: len(items) >= 3)
        assert client.put(f"{RUN}/policy", json={"policy": "geo_mask"}).status_code == 200
        shown = eventually(lambda: client.get("/metrics").text, lambda text: 'policy="geo_mask"' in text)
        assert client.patch(RUN, json={"owner": "ana"}).status_code == 200
        eventually(lambda: client.get(RUN).json()["owner"], lambda owner: owner == "ana")
    assert f'trmon_kl_k3{{project="{KEY.project}",run="{KEY.run}"}}' in shown
    counted = next(line for line in shown.splitlines() if line.startswith("trmon_close_lag_seconds_count"))
    assert float(counted.split()[1]) >= 3
    assert client.get("/readyz").status_code == 200
    assert process.process.poll() is None
    # A terminal or a process manager signals every process at once, and the worker leaves the end to the service.
    worker, n_closed = EmbeddedWorker(process).pid, len(sending.acknowledged) - 1
    os.kill(worker, signal.SIGTERM)
    assert process.stop() in (0, -signal.SIGTERM)
    assert not Path(f"/proc/{worker}").exists()
    url = f"sqlite:///{process.data_dir / 'trmon.sqlite'}"
    with closing(Store.open(url, role=ProcessRole.READER)) as store:
        (run,) = store.run_log.unfinished_runs()
        reached = store.run_log.progress(run.id)
        assert len(store.run_log.batches_after(run.id, 0, limit=10_000)) == n_closed
    assert reached.checkpoint is not None
    assert reached.checkpoint.ordinal == n_closed


def test_a_worker_that_stays_frozen_is_killed_and_its_successor_closes_every_batch_once(tmp_path: Path) -> None:
    settings, counters, others = Settings(data_dir=tmp_path), Counters(), family([os.getpid()])
    prepare_database(settings.store_url)
    with closing(Store.open(settings.store_url, role=ProcessRole.WRITER)) as store:
        worker = WorkerProcess(settings, store.run_log, views=RunViewCache(), observer=counters, hung_seconds=3.0)
        store.on_commit(worker.wake)
        worker.start()
        for first in (0, 20):
            run_id = send_steps(store, range(first, first + 10))
            eventually(partial(rows_of, store, run_id), lambda rows, first=first: len(rows) >= first + 9)
            frozen = worker_pid(others)
            os.kill(frozen, signal.SIGSTOP)
            send_steps(store, range(first + 10, first + 20))
            eventually(partial(worker_pid, others), lambda pid, frozen=frozen: pid != frozen)
        eventually(partial(rows_of, store, run_id), lambda rows: len(rows) >= 39)
        eventually(lambda: worker.beat_age_seconds < 3.0)
        worker.close()
        rows = rows_of(store, run_id)
    assert [row.key.step for row in rows] == list(range(len(rows)))
    assert not any(row.revised for row in rows)
    ended = counters.registry.get_sample_value
    assert ended("trmon_worker_restarts_total", {"reason": "hung"}) == 2
    assert ended("trmon_worker_restarts_total", {"reason": "exited"}) == 0


def send_steps(store: Store, steps: range) -> int:
    return receive(store, *map(next_report, steps), at=time.time())


def worker_pid(others: set[int]) -> int:
    """Return the id of the only descendant of this process beside others."""
    return eventually(lambda: family([os.getpid()]) - others, lambda found: len(found) == 1).pop()


def test_the_worker_exits_when_the_service_is_killed(process: ServiceProcess) -> None:
    worker = EmbeddedWorker(process).pid
    process.kill()
    eventually(lambda: not Path(f"/proc/{worker}").exists())
