"""The tiny trainer and a real service that comes, dies and returns: every step arrives, and nothing is lost."""

from __future__ import annotations

import time
from pathlib import Path

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.client.faults.hostile_server import HostileServer, hang_up
from tests.client.faults.tiny_trainer import N_UPDATES, train
from tests.client.trainer import settings
from tests.fixtures.ports import free_port
from tests.fixtures.service import ServiceProcess, ThreadedService
from tests.fixtures.waiting import eventually
from trmon_client.config.settings import Limits
from trmon_client.monitor import Monitor

pytestmark = pytest.mark.slow

STEPS = 30
PER_STEP = [(step, update) for step in range(STEPS) for update in range(N_UPDATES)]
HOUR_SECONDS = 3600.0
TRIES_IN_AN_HOUR = int(HOUR_SECONDS / Limits().retry_cap_seconds)


def batches(client: httpx.Client) -> list[tuple[int, int]]:
    """Return step and update of each batch of the run, oldest first."""
    answer = client.get("/api/v1/runs/math/grpo/batches", params={"limit": 500})
    items = answer.json()["items"] if answer.status_code == 200 else []
    return sorted((batch["step"], batch["update"]) for batch in items)


def lost(client: httpx.Client) -> dict[str, int]:
    """Return the losses that the service's metrics tell, by reason."""
    families = text_string_to_metric_families(client.get("/metrics").text)
    samples = (sample for family in families for sample in family.samples if sample.name == "trmon_dropped_total")
    return {sample.labels["reason"]: int(sample.value) for sample in samples if sample.value}


def every_batch(client: httpx.Client) -> list[tuple[int, int]]:
    """Return the batches of the run as soon as there are as many as the trainer reported."""
    return eventually(lambda: batches(client), lambda found: len(found) == len(PER_STEP))


def test_a_service_that_dies_and_returns_after_an_hour_gets_every_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    untouched, real_monotonic = train(steps=STEPS), time.monotonic
    service = ServiceProcess(tmp_path / "data")

    def die_and_return(step: int) -> None:
        if step == 10:
            service.kill()
        if step == 20:
            service.start()
            monkeypatch.setattr(time, "monotonic", lambda: real_monotonic() + HOUR_SECONDS)

    limits = {
        "retry_first_seconds": HOUR_SECONDS / 2,
        "retry_cap_seconds": HOUR_SECONDS / 2,
        "read_timeout_seconds": 60.0,
    }
    chosen = settings(tmp_path, url=service.url, limits=limits)
    try:
        with Monitor(chosen) as monitor:
            assert train(monitor, steps=STEPS, before_step=die_and_return) == untouched
            with service.client() as client:
                assert every_batch(client) == PER_STEP
                assert lost(client) == {}
    finally:
        service.kill()


def test_as_many_failures_as_in_an_hour_leave_the_spool_complete(tmp_path: Path) -> None:
    port, untouched = free_port(), train(steps=STEPS)
    limits = {"retry_first_seconds": 0.001, "retry_cap_seconds": 0.002}
    with Monitor(settings(tmp_path, url=f"http://127.0.0.1:{port}", limits=limits)) as monitor:
        with HostileServer(hang_up, port=port) as server:
            assert train(monitor, steps=STEPS) == untouched
            eventually(lambda: server.n_connections, lambda n: n >= TRIES_IN_AN_HOUR)
        service = ThreadedService(tmp_path / "data", port=port)
        try:
            with service.client() as client:
                assert every_batch(client) == PER_STEP
                assert lost(client) == {}
        finally:
            service.stop()
