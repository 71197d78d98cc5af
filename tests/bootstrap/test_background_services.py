"""A running service: what it prints at its start, its background services, and its garbage collection."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import httpx
import pytest
from deltalake import DeltaTable
from msgspec import structs

from tests.fixtures.command import run_python
from tests.fixtures.ports import free_port
from tests.fixtures.running_service import Serve
from tests.fixtures.service import ServiceProcess, ThreadedService
from tests.fixtures.trainer import MATH, send, step_report, train
from tests.fixtures.waiting import eventually
from trmon.cli.serve import serve_metrics
from trmon.domain.errors import NotReady
from trmon.domain.health_check import HUNG_SECONDS
from trmon.metrics.counters import Counters

LAST = "decision ="


def test_the_lines_that_a_service_prints_report_a_run(process: ServiceProcess, tmp_path: Path) -> None:
    assert process.process.stdout is not None
    lines: list[str] = []
    while not lines or LAST not in lines[-1]:
        lines.append(process.process.stdout.readline())
    said = {line[:11].strip(): line[11:].strip() for line in lines if line[:11].strip()}
    assert said["page"] == process.url
    assert said["data"] == str(process.data_dir)
    assert said["tokens"].startswith("none: this machine alone")
    trainer = "import numpy as np\nstep, mask, mu = 0, np.ones((2, 4)), np.full((2, 4), -1.0)\npi = mu\n"
    script = tmp_path / "grpo.py"
    script.write_text(trainer + "\n".join([said["trainer"], *(line.strip() for line in lines if "monitor" in line)]))
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TRMON_")}
    subprocess.run([sys.executable, script], env=environment, cwd=tmp_path, check=True, timeout=60)
    (run,) = httpx.get(f"{process.url}/api/v1/runs").json()["items"]
    assert run["project"] == "math"
    assert run["run"].startswith("grpo-")


RUN = "/api/v1/runs/math/grpo"


def test_a_run_that_ends_moves_once_the_lake_is_there_and_a_late_report_follows(serve: Serve, tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    lake.write_text("a file where the folder should be")
    service = serve(lake_url=str(lake), lake_after_seconds=0.0, lake_every_seconds=0.1)
    with service.client() as client:

        def counted(has: Callable[[str], bool]) -> str:
            return eventually(lambda: client.get("/metrics").text, has)

        train(client, steps=range(3))
        counted(lambda text: 'trmon_lake_total{what="failures"} 0.0' not in text)
        assert client.get("/readyz").status_code == 200
        lake.unlink()
        moved = counted(lambda text: 'trmon_lake_total{what="attempts"} 1.0' in text)
        assert 'trmon_lake_total{what="reports"} 3.0' in moved
        send(client, MATH, structs.replace(step_report(1), chunk=1))
        late = counted(lambda text: 'trmon_lake_total{what="reports"} 4.0' in text)
        assert 'trmon_quarantined_total{reason="report"} 1.0' in late
        assert next(line for line in moved.splitlines() if 'trmon_lake_total{what="failures"}' in line) in late
    rows = DeltaTable(str(lake / "reports")).to_pyarrow_table().select(["step", "chunk"]).to_pylist()
    assert {"step": 1, "chunk": 1} in rows
    assert sorted(DeltaTable(str(lake / "batches")).to_pyarrow_table()["step"].to_pylist()) == [0, 1, 2]


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


SCRIPT = """
import gc, time
from trmon.bootstrap import app, background_services

background_services.tune_memory()
assert len(gc.get_objects()) < 1000, "a full collection examines little more than objects made after the start"
knot = [time]
knot.append(knot)
del knot
assert gc.collect() > 0, "later objects are still collected"
print(gc.get_threshold() == background_services.THRESHOLDS)
"""


def test_objects_of_the_start_are_left_out_of_collections() -> None:
    # In a process of its own: frozen objects cannot be restored.
    done = run_python(SCRIPT)
    assert (done.stdout, done.returncode) == ("True\n", 0), done.stderr
