"""The service dies while a trainer trains: nothing is lost, no alert comes twice, the client catches up."""

from __future__ import annotations

import json
import time
from collections import Counter
from pathlib import Path
from threading import Thread
from typing import Any

import httpx

import trmon_client as trmon
from tests.fixtures.receiver import WebhookServer
from tests.fixtures.service import ServiceProcess
from tests.fixtures.two_engines import two_engines_batch
from tests.fixtures.waiting import eventually

N_STEPS = 70
ILL_FROM = 30
STEP_SECONDS = 0.03
KILL_AT = (25, 45)
AWAY_SECONDS = 0.4


def test_a_service_killed_twice_has_every_step_once_and_every_alert_once(tmp_path: Path) -> None:
    with WebhookServer() as pager:
        service = ServiceProcess(tmp_path / "data", webhook_url=pager.url, webhook_allow_hosts="127.0.0.1")
        try:
            acknowledged = _train(service, pager=pager, spool_dir=tmp_path / "spool")
            with service.client() as client:
                batches = eventually(lambda: _batches(client), lambda found: len(found) >= N_STEPS)
                events = _alert_events(client)
        finally:
            service.kill()

    assert [batch["step"] for batch in reversed(batches)] == list(range(N_STEPS))
    assert acknowledged <= {batch["step"] for batch in batches}
    assert not any(batch["revised"] or batch["mismatches"] for batch in batches)
    assert {rule for rule, _, _ in events} >= {"engine_mismatch"}
    assert max(events.values()) == 1
    assert len(_firing(pager)) == len(set(_firing(pager))), "the pager was told of one alert under two keys"


def _firing(pager: WebhookServer) -> list[tuple[str, str]]:
    """Return the run and the rule of each firing alert that was told, once for each key it was told under."""
    messages = [json.loads(posted.body) for posted in pager.posted]
    told = {alert["key"]: (message["run"]["run"], alert) for message in messages for alert in message["alerts"]}
    return [(run, alert["rule"]) for run, alert in told.values() if alert["status"] == "firing"]


def _train(service: ServiceProcess, *, pager: WebhookServer, spool_dir: Path) -> set[int]:
    """Train while the service is killed and started again; return the steps that were on disk before a kill."""
    killer = Thread(target=service.client().close)
    killer.start()
    acknowledged: set[int] = set()
    with trmon.init(project="math", run="r", url=service.url, spool_dir=spool_dir) as monitor:
        for step in range(N_STEPS):
            if step in KILL_AT:
                killer.join()
                with service.client() as client:
                    acknowledged |= {batch["step"] for batch in _batches(client)}
                killer = Thread(target=_kill_and_start, args=(service,))
                killer.start()
            monitor.log_batch(**two_engines_batch(step, ill_from=ILL_FROM), chunks=1)
            time.sleep(STEP_SECONDS)
        killer.join()
        eventually(lambda: _firing(pager))  # while the run lives: one that has ended sends no page
        monitor.close(timeout=30.0)
    return acknowledged


def _kill_and_start(service: ServiceProcess) -> None:
    service.kill()
    time.sleep(AWAY_SECONDS)
    service.start()


def _batches(client: httpx.Client) -> list[dict[str, Any]]:
    answer = client.get("/api/v1/runs/math/r/batches", params={"limit": 500})
    items: list[dict[str, Any]] = answer.json()["items"] if answer.status_code == 200 else []
    return items


def _alert_events(client: httpx.Client) -> Counter[tuple[str, int, str]]:
    alerts = client.get("/api/v1/alerts", params={"project": "math"}).json()["items"]
    counts: Counter[tuple[str, int, str]] = Counter()
    for identity in {alert["identity"] for alert in alerts}:
        rule = next(alert["rule"] for alert in alerts if alert["identity"] == identity)
        for event in client.get("/api/v1/alerts/events", params={"identity": identity}).json()["items"]:
            counts[rule, event["step"], event["state"]] += 1
    return counts
