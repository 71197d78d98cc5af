"""A real Prometheus scrapes the service and is queried through its HTTP API."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.fixtures.prometheus import binary, query, scraping
from tests.fixtures.prometheus import prometheus as running
from tests.fixtures.running_service import make_token
from tests.fixtures.service import ThreadedService
from tests.fixtures.trainer import train
from tests.fixtures.waiting import eventually
from trmon.domain.access import Scope

pytestmark = pytest.mark.server("prometheus", "promtool")


@pytest.fixture
def prometheus(tmp_path: Path, service: ThreadedService, admin: httpx.Client) -> Iterator[httpx.Client]:
    """Prometheus' HTTP API, scraping the service with a read token once a second."""
    token = make_token(admin, "prometheus", Scope.READ)
    with running(tmp_path, scraping(service.url, token=token)) as client:
        yield client


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
    # A scrape that was too slow leaves nothing until the next one.
    [kl] = eventually(lambda: query(prometheus, "trmon_kl_k3"))
    assert float(kl["value"][1]) == expected
    eventually(lambda: query(prometheus, "up"), lambda found: [series["value"][1] for series in found] == ["1"])
    eventually(lambda: len(query(prometheus, "trmon_mask_rate")), (4).__eq__)
    [finished] = eventually(lambda: query(prometheus, "trmon_run_state == 1"))
    assert finished["metric"]["state"] == "finished"
    assert eventually(lambda: query(prometheus, "sum(trmon_reports_total) > 4"))
    eventually(
        lambda: [target["lastError"] for target in prometheus.get("/api/v1/targets").json()["data"]["activeTargets"]],
        [""].__eq__,
    )


def test_promtool_finds_no_problem(client: httpx.Client) -> None:
    train(client, steps=range(2))
    text = client.get("/metrics").text
    checked = subprocess.run(
        [binary("promtool"), "check", "metrics"], input=text, capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr
