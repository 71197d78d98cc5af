"""Liveness and readiness probes."""

from __future__ import annotations

import httpx

from tests.fixtures.service import ServiceProcess, ThreadedService


def test_a_running_service_is_alive_and_ready(client: httpx.Client) -> None:
    assert client.get("/healthz").json() == {"status": "ok"}
    assert client.get("/readyz").json() == {"status": "ok"}


def test_without_its_worker_the_service_is_alive_but_not_ready(client: httpx.Client, service: ThreadedService) -> None:
    service.app.state.services.worker.close()
    assert client.get("/healthz").status_code == 200
    answer = client.get("/readyz")
    assert answer.status_code == 503
    assert "worker" in answer.json()["detail"]


def test_without_its_writer_the_service_accepts_no_messages(client: httpx.Client, service: ThreadedService) -> None:
    service.app.state.components.store.writer.close()
    answer = client.get("/readyz")
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
    refused = client.post("/api/v1/tokens", json={"name": "x", "scopes": ["read"]})
    assert refused.status_code == 503


def test_a_signal_shuts_the_service_down_cleanly(process: ServiceProcess) -> None:
    assert httpx.get(f"{process.url}/readyz", trust_env=False).status_code == 200
    assert process.stop() in (0, -15)
    assert not (process.data_dir / "trmon.sqlite-wal").exists()
