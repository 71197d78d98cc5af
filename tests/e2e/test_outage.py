"""The service dies while a trainer trains: nothing is lost or comes twice, and all name the step where it broke."""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from pathlib import Path
from threading import Thread
from typing import Any

import httpx
import pytest

import trmon_client as trmon
from tests.fixtures.command import trmon as command
from tests.fixtures.receiver import WebhookServer
from tests.fixtures.service import ServiceProcess
from tests.fixtures.two_engines import two_engines_batch
from tests.fixtures.waiting import eventually

ILL_FROM = 30
READ_AFTER = (10, 150, 260)
"""Steps of illness after which each place is read; a diagnosis reads 256."""
N_STEPS = ILL_FROM + READ_AFTER[-1] + 1
KILL_AT = (25, 45, 170)
STEP_SECONDS = 0.03
"""Of a step while the service is away, so that some are taken then."""
AWAY_SECONDS = 0.4
RUN = "/api/v1/runs/math/r"
METRIC = "trmon_incident_since_step{"
OPENING = ("firing", "a finding stands")


@pytest.mark.timeout(300)
def test_a_service_killed_thrice_has_every_step_and_alert_once_and_one_step_where_the_run_broke(tmp_path: Path) -> None:
    acknowledged: set[int] = set()
    since_steps: list[dict[str, int]] = []
    with WebhookServer() as pager:
        service = ServiceProcess(tmp_path / "data", webhook_url=pager.url, webhook_allow_hosts="127.0.0.1")
        killer = Thread(target=service.client().close)
        killer.start()
        try:
            with trmon.init(project="math", run="r", url=service.url, spool_dir=tmp_path / "spool") as monitor:
                for step in range(N_STEPS):
                    if step in KILL_AT:
                        killer.join()
                        with service.client() as client:
                            acknowledged |= {batch["step"] for batch in _batches(client)}
                        killer = Thread(target=_kill_and_start, args=(service,))
                        killer.start()
                    monitor.log_batch(**two_engines_batch(step, ill_from=ILL_FROM), chunks=1)
                    if killer.is_alive():
                        time.sleep(STEP_SECONDS)
                    if step - ILL_FROM in READ_AFTER:
                        killer.join()
                        since_steps.append(_since_steps(service, step))
                eventually(lambda: _told(pager))  # while the run lives: one that has ended sends no page
                monitor.close(timeout=30.0)
            with service.client() as client:
                batches = eventually(lambda: _batches(client), lambda found: len(found) >= N_STEPS)
                events = _alert_events(client)
        finally:
            killer.join()
            service.kill()

    assert [batch["step"] for batch in reversed(batches)] == list(range(N_STEPS))
    assert acknowledged <= {batch["step"] for batch in batches}
    assert not any(batch["revised"] or batch["mismatches"] for batch in batches)
    assert {rule for rule, _, _ in events} >= {"engine_mismatch"}
    assert max(events.values()) == 1
    told = _told(pager)
    firing = [alert["rule"] for alert in told if alert["status"] == "firing"]
    assert len(firing) == len(set(firing)), "the pager was told of one alert under two keys"
    incidents = [alert for alert in told if alert["rule"] == "incident"]
    named = {since for places in since_steps for since in places.values()}
    assert named | {alert["since_step"] for alert in incidents} == {ILL_FROM}, since_steps
    assert [(alert["status"], alert["reason"]) for alert in incidents].count(OPENING) == 1


def _kill_and_start(service: ServiceProcess) -> None:
    service.kill()
    time.sleep(AWAY_SECONDS)
    service.start()


def _told(pager: WebhookServer) -> list[dict[str, Any]]:
    """Return the alerts that the pager was told, once for each key."""
    messages = [json.loads(posted.body) for posted in pager.posted]
    return [*{alert["key"]: alert for message in messages for alert in message["alerts"]}.values()]


def _batches(client: httpx.Client) -> list[dict[str, Any]]:
    answer = client.get(f"{RUN}/batches", params={"limit": 500})
    items: list[dict[str, Any]] = answer.json()["items"] if answer.status_code == 200 else []
    return items


def _alert_events(client: httpx.Client) -> Counter[tuple[str, int, str]]:
    alerts = client.get("/api/v1/alerts", params={"project": "math"}).json()["items"]
    return Counter(
        (rule, event["step"], event["state"])
        for identity, rule in {alert["identity"]: alert["rule"] for alert in alerts}.items()
        for event in client.get("/api/v1/alerts/events", params={"identity": identity}).json()["items"]
    )


def _since_steps(service: ServiceProcess, step: int) -> dict[str, int]:
    """Return the step where the run broke, as each place shows it once a step is closed."""
    with service.client() as client:
        eventually(
            lambda: [one["step"] for one in _batches(client)[:1]], lambda steps: steps == [step], timeout_seconds=100.0
        )
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
