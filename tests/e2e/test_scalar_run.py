"""A run by its scalars, from the real client to everything that a person reads, on both databases."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from rich.console import Console

from tests.client.trainer import settings
from tests.fixtures.fleet import WorkerProcess
from tests.fixtures.service import ThreadedService
from tests.fixtures.waiting import eventually
from trmon.cli.show import fetch_run_detail, print_run
from trmon.domain.identity import RunKey
from trmon_client.api import Service
from trmon_client.monitor import Monitor

RUN = RunKey("math", "grpo")
PATH = f"/api/v1/runs/{RUN}"
STEPS = 30
GRADIENT_SPIKE_AT = 25


@pytest.fixture(params=["embedded", pytest.param("fleet", marks=pytest.mark.server("postgres"))])
def running(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ThreadedService]:
    """The service over SQLite, or over PostgreSQL with a worker of its own."""
    if request.param == "embedded":
        service = ThreadedService(tmp_path / "data")
        yield service
        service.stop()
        return
    url = request.getfixturevalue("postgres_url")
    service = ThreadedService(tmp_path / "unused", database_url=url)
    with WorkerProcess(url, log=tmp_path / "worker.log"):
        yield service
    service.stop()


def train(service: ThreadedService, folder: Path) -> None:
    """Log the scalars of a run as a trainer without log-probs does."""
    with Monitor(settings(folder, url=service.url)) as monitor:
        for step in range(STEPS):
            values = {"reward": 0.5, "entropy": 0.7, "length": 100.0, "loss": 0.1}
            monitor.log_scalars(step, {**values, "grad_norm": 90.0 if step == GRADIENT_SPIKE_AT else 1.0})


def read(client: httpx.Client, path: str, **query: Any) -> Any:
    answer = client.get(path, params=query)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_a_run_by_its_scalars_has_rows_alerts_charts_a_verdict_and_metrics(
    running: ThreadedService, tmp_path: Path
) -> None:
    train(running, tmp_path / "trainer")
    with running.client() as client:
        eventually(
            lambda: client.get(PATH).json(),
            lambda run: run.get("state") == "finished" and run["last_step"] == STEPS - 1,
        )
        batches = eventually(lambda: read(client, f"{PATH}/batches", limit=50)["items"], lambda got: len(got) == STEPS)
        assert sorted(batch["step"] for batch in batches) == list(range(STEPS))
        assert {(batch["n_sequences"], batch["complete"], batch["signals"]["reward_mean"]) for batch in batches} == {
            (0, True, 0.5)
        }
        names = "reward_mean,response_length_mean,entropy,grad_norm"
        series = read(client, f"{PATH}/signals", names=names, points=STEPS)
        assert series["signals"]["response_length_mean"]["last"] == [100.0] * STEPS
        assert series["signals"]["grad_norm"]["max"][GRADIENT_SPIKE_AT] == 90.0
        fired = [alert["rule"] for alert in read(client, "/api/v1/alerts")["items"]]
        assert "gradient_spike" in fired
        run = read(client, PATH)["status"]
        assert run["reward"]["values"][-1] == 0.5
        assert run["step"] == STEPS - 1
        for path in ("diagnosis", "budget", "policy", f"batches/{STEPS - 1}"):
            assert client.get(f"{PATH}/{path}").status_code in (200, 404), path
        for path in (f"batches/{STEPS - 1}/sequences", f"batches/{STEPS - 1}/decisions", "whatif?policy=geo_mask"):
            assert client.get(f"{PATH}/{path}").status_code < 500, path
        sample = 'trmon_reward_mean{project="math",run="grpo"} 0.5'
        eventually(lambda: client.get("/metrics").text, lambda text: sample in text)
    text = io.StringIO()
    with Service(running.url) as reader:
        detail = fetch_run_detail(reader, RUN)
    print_run(detail, Console(file=text, width=200), now=0.0)
    assert "reward_mean" in text.getvalue()


def test_a_run_by_its_scalars_goes_on_over_a_restart_of_the_service(tmp_path: Path) -> None:
    service = ThreadedService(tmp_path / "data")
    monitor = Monitor(settings(tmp_path / "trainer", url=service.url))
    for step in range(5):
        monitor.log_scalars(step, {"reward": 0.5})
    with service.client() as client:
        eventually(lambda: client.get(PATH).json(), lambda run: run.get("last_step") == 4)
    address = service.url
    service.restart(port=int(address.rpartition(":")[2]))
    for step in range(5, 10):
        monitor.log_scalars(step, {"reward": 0.5})
    monitor.close(timeout=None)
    with service.client() as client:
        path = f"{PATH}/batches"
        batches = eventually(lambda: client.get(path).json()["items"], lambda found: len(found) == 10)
    assert [batch["step"] for batch in reversed(batches)] == list(range(10))
    service.stop()
