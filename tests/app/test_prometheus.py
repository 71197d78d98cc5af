"""A real Prometheus scrapes the service and is asked over its own HTTP API."""

from __future__ import annotations

import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.app.conftest import make_token
from tests.fixtures.service import ThreadedService
from tests.fixtures.trainer import train
from tests.fixtures.waiting import eventually
from trmon.domain.access import Scope

pytestmark = pytest.mark.server("prometheus", "promtool")

CONFIG = """
global: {{scrape_interval: 1s, scrape_timeout: 1s}}
scrape_configs:
  - job_name: trmon
    authorization: {{credentials: {token}}}
    static_configs: [{{targets: ["{target}"]}}]
"""


@pytest.fixture
def prometheus(tmp_path: Path, service: ThreadedService, admin: httpx.Client) -> Iterator[httpx.Client]:
    """Prometheus' HTTP API, scraping the service with a read token once a second."""
    token = make_token(admin, "prometheus", Scope.READ)
    config = tmp_path / "prometheus.yml"
    config.write_text(CONFIG.format(token=token, target=service.url.removeprefix("http://")))
    port = free_port()
    command = [
        *(binary("prometheus"), f"--config.file={config}", f"--storage.tsdb.path={tmp_path / 'tsdb'}"),
        *(f"--web.listen-address=127.0.0.1:{port}", "--log.level=error"),
    ]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=10.0, trust_env=False) as client:
        eventually(lambda: is_ready(client), timeout_seconds=60.0)
        yield client
    process.terminate()
    process.wait(30.0)


def binary(name: str) -> str:
    found = shutil.which(name)
    assert found is not None, f"{name} is missing; it is in Debian's package prometheus"
    return found


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def is_ready(client: httpx.Client) -> bool:
    try:
        return client.get("/-/ready").status_code == 200
    except httpx.TransportError:
        return False


def query(client: httpx.Client, expression: str) -> list[dict[str, object]]:
    """Return the series of an expression as {"metric": labels, "value": [time, text]}."""
    answer = client.get("/api/v1/query", params={"query": expression}).json()
    assert answer["status"] == "success", answer
    found: list[dict[str, object]] = answer["data"]["result"]
    return found


def test_a_run_can_be_queried(prometheus: httpx.Client, admin: httpx.Client) -> None:
    train(admin, steps=range(3))
    expression = 'trmon_step{project="math",run="grpo"} == 2'
    [step] = eventually(lambda: query(prometheus, expression), timeout_seconds=60.0)
    assert step["metric"] == {
        "__name__": "trmon_step",
        "job": "trmon",
        "project": "math",
        "run": "grpo",
        "instance": str(admin.base_url).removeprefix("http://").rstrip("/"),
    }
    expected = admin.get("/api/v1/runs/math/grpo/batches/2").json()["signals"]["total_kl_k3"]
    [kl] = query(prometheus, "trmon_kl_k3")
    assert float(kl["value"][1]) == expected  # type: ignore[index]
    assert query(prometheus, "up == 0") == []
    assert len(query(prometheus, "trmon_mask_rate")) == 4
    [finished] = query(prometheus, "trmon_run_state == 1")
    assert finished["metric"]["state"] == "finished"  # type: ignore[index]
    assert query(prometheus, "sum(trmon_reports_total) > 4")
    targets = prometheus.get("/api/v1/targets").json()["data"]["activeTargets"]
    assert [target["lastError"] for target in targets] == [""]


def test_promtool_finds_no_fault(client: httpx.Client) -> None:
    train(client, steps=range(2))
    text = client.get("/metrics").text
    checked = subprocess.run(
        [binary("promtool"), "check", "metrics"], input=text, capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr
