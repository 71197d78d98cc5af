"""Where a long run broke: the same step everywhere, after 10 and 260 steps, and after the service was killed."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import trmon_client as trmon
from tests.fixtures.command import trmon as command
from tests.fixtures.receiver import WebhookServer
from tests.fixtures.service import ServiceProcess
from tests.fixtures.two_engines import two_engines_batch
from tests.fixtures.waiting import eventually

pytestmark = pytest.mark.slow
ILL_FROM = 30
KILLED_AFTER = 150
READ_AFTER = (10, 260)
"""Steps after which each place is read, besides just after the kill; a diagnosis reads 256."""


@pytest.mark.timeout(300)
def test_the_step_where_a_run_broke_is_the_same_everywhere_and_for_ever(tmp_path: Path) -> None:
    read: list[dict[str, int]] = []
    with WebhookServer() as pager:
        service = ServiceProcess(tmp_path / "data", webhook_url=pager.url, webhook_allow_hosts="127.0.0.1")
        try:
            with trmon.init(project="math", run="r", url=service.url, spool_dir=tmp_path / "spool") as monitor:
                for step in range(ILL_FROM + max(READ_AFTER) + 1):
                    monitor.log_batch(**two_engines_batch(step, ill_from=ILL_FROM), chunks=1)
                    if step == ILL_FROM + KILLED_AFTER:
                        service.kill()
                        service.start()
                    if step - ILL_FROM in (*READ_AFTER, KILLED_AFTER):
                        _await_step(service, step)
                        read.append(_since_steps(service))
            told = {alert["since_step"] for alert in _incidents(pager)}
            openings = [alert for alert in _incidents(pager) if (alert["status"], alert["reason"]) == OPENING]
        finally:
            service.kill()
    assert {since for places in read for since in places.values()} | told == {ILL_FROM}, read
    assert len(openings) == 1


OPENING = ("firing", "a finding stands")


def _incidents(pager: WebhookServer) -> Iterator[dict[str, Any]]:
    for posted in pager.posted:
        yield from (alert for alert in json.loads(posted.body)["alerts"] if alert["rule"] == "incident")


def _await_step(service: ServiceProcess, step: int) -> None:
    with service.client() as client:
        eventually(
            lambda: [one["step"] for one in client.get(f"{RUN}/batches?limit=1").json().get("items", ())],
            lambda steps: steps == [step],
            timeout_seconds=100.0,
        )


RUN = "/api/v1/runs/math/r"


def _since_steps(service: ServiceProcess) -> dict[str, int]:
    """Return the step where the run broke, as each place shows it."""
    with service.client() as client:
        alerts = client.get("/api/v1/alerts?project=math").json()["items"]
        [alert] = [one for one in alerts if one["rule"] == "incident"]
        # The view of a run follows its rows.
        [sample] = eventually(
            lambda: [line for line in client.get("/metrics").text.splitlines() if line.startswith(METRIC)]
        )
        shown = command("show", "math/r", "--url", service.url).stdout
        return {
            "diagnosis": client.get(f"{RUN}/diagnosis").json()["since_step"],
            "verdict": client.get(RUN).json()["status"]["verdict"]["since_step"],
            "incident": client.get(RUN).json()["incident"]["since_step"],
            "alert": alert["step"],
            "metric": int(float(sample.split()[-1])),
            "terminal": int(re.findall(r"since step ([\d,]+)", shown)[0].replace(",", "")),
        }


METRIC = "trmon_incident_since_step{"
