"""Background services of a running service: ended runs move to the lake, and old reports are deleted."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass, replace
from pathlib import Path

import httpx
import pytest
from deltalake import DeltaTable
from msgspec import structs

from benchmarks.load.deployments import EmbeddedWorker
from tests.fixtures.ports import free_port
from tests.fixtures.running_service import Serve
from tests.fixtures.sending import Sending
from tests.fixtures.service import ServiceProcess, ThreadedService
from tests.fixtures.trainer import MATH, send, step_report, train
from tests.fixtures.waiting import eventually
from trmon.cli.serve import serve_metrics
from trmon.domain.errors import NotReady
from trmon.domain.health_check import HUNG_SECONDS
from trmon.domain.identity import RunKey
from trmon.metrics.counters import Counters

RUN = "/api/v1/runs/math/grpo"


def test_a_run_that_ends_moves_to_the_lake_and_a_late_report_is_quarantined_and_follows(
    serve: Serve, tmp_path: Path
) -> None:
    lake = tmp_path / "lake"
    service = serve(lake_url=str(lake), lake_after_seconds=0.0, lake_every_seconds=0.1)
    with service.client() as client:
        train(client, steps=range(3))
        counted = eventually(
            lambda: client.get("/metrics").text, lambda text: 'trmon_lake_total{what="attempts"} 1.0' in text
        )
        assert 'trmon_lake_total{what="reports"} 3.0' in counted
        assert 'trmon_lake_total{what="failures"} 0.0' in counted
        send(client, MATH, structs.replace(step_report(1), chunk=1))
        counted = eventually(
            lambda: client.get("/metrics").text, lambda text: 'trmon_lake_total{what="reports"} 4.0' in text
        )
        assert 'trmon_quarantined_total{reason="report"} 1.0' in counted
    rows = DeltaTable(str(lake / "reports")).to_pyarrow_table().select(["step", "chunk"]).to_pylist()
    assert {"step": 1, "chunk": 1} in rows
    assert sorted(DeltaTable(str(lake / "batches")).to_pyarrow_table()["step"].to_pylist()) == [0, 1, 2]


def test_a_lake_that_is_away_is_counted_and_moved_to_once_it_is_back(serve: Serve, tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    lake.write_text("a file where the folder should be")
    service = serve(lake_url=str(lake), lake_after_seconds=0.0, lake_every_seconds=0.1)
    with service.client() as client:
        train(client, steps=range(3))
        eventually(
            lambda: client.get("/metrics").text, lambda text: 'trmon_lake_total{what="failures"} 0.0' not in text
        )
        assert client.get("/readyz").status_code == 200
        lake.unlink()
        eventually(lambda: client.get("/metrics").text, lambda text: 'trmon_lake_total{what="attempts"} 1.0' in text)
    assert DeltaTable(str(lake / "reports")).to_pyarrow_table().num_rows == 3


def test_old_reports_are_deleted_and_their_batches_are_kept(serve: Serve) -> None:
    service = serve(retention_run_bytes=0, retention_every_seconds=0.05)
    with service.client() as client:
        train(client, steps=range(3))
        eventually(lambda: client.get(f"{RUN}/batches/0/sequences").status_code, lambda status: status == 404)
        assert client.get(f"{RUN}/batches/0").json()["signals"]["total_kl_k3"] is not None
        assert 'trmon_pruned_total{what="reports"}' in client.get("/metrics").text


@dataclass(frozen=True)
class HungWorker:
    """A worker whose thread runs, and makes no progress."""

    beat_age_seconds: float
    alive: bool = True


def test_a_worker_that_makes_no_progress_is_not_ready(service: ThreadedService) -> None:
    services = service.app.state.services
    services.check()
    replace(services, worker=HungWorker(HUNG_SECONDS - 1.0)).check()
    with pytest.raises(NotReady, match="the worker has made no progress for 31 s"):
        replace(services, worker=HungWorker(HUNG_SECONDS + 1.0)).check()


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_a_frozen_worker_is_seen_everywhere_while_reports_are_acknowledged_and_is_replaced(
    process: ServiceProcess,
) -> None:
    with process.client() as client, Sending(process.url, RunKey("math", "grpo")) as sending:
        newest = f"{RUN}/batches?limit=1"
        eventually(lambda: client.get(newest).json()["items"])
        os.kill(EmbeddedWorker(process).pid, signal.SIGSTOP)
        eventually(lambda: client.get("/readyz").status_code, (503).__eq__)
        eventually(lambda: client.get("/readyz").status_code, (200).__eq__)
        assert 'trmon_worker_restarts_total{reason="hung"} 1.0' in client.get("/metrics").text
        n = len(sending.acknowledged)
        eventually(lambda: client.get(newest).json()["items"][0]["step"], lambda step: step >= n - 1)
        assert set(sending.answers) == {200}


def test_the_probe_of_a_worker_answers_503_once_its_check_fails() -> None:
    port = free_port()
    show_health = serve_metrics(Counters(), host="127.0.0.1", port=port)
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False) as client:
        assert client.get("/healthz").status_code == 200, "it starts"
        show_health(lambda: None)
        assert (client.get("/healthz").status_code, client.get("/healthz").text) == (200, "ok\n")

        def check() -> None:
            raise NotReady("the worker has made no progress for 31 s")

        show_health(check)
        assert client.get("/healthz").status_code == 503
        assert "no progress for 31 s" in client.get("/healthz").text
        assert "trmon_worker_failures_total 0.0" in client.get("/metrics").text
