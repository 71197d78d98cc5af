"""Alerts from a trainer's reports to a webhook through Prometheus alone: real servers with our configuration."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from tests.fixtures.alertmanager import alertmanager
from tests.fixtures.messages import ORIGIN, columns
from tests.fixtures.prometheus import prometheus
from tests.fixtures.receiver import WebhookServer
from tests.fixtures.service import ServiceProcess
from tests.fixtures.trainer import MATH, send, send_step
from tests.fixtures.waiting import eventually
from trmon_client.core import wire

pytestmark = [pytest.mark.server("prometheus", "prometheus-alertmanager"), pytest.mark.timeout(240)]

DEPLOY = Path(__file__).parents[2] / "deploy"
N_STEPS = 5
"""Steps with corrupt log-probs; the rule fires after three."""


def of_prometheus(url: str, *, alertmanager_url: str) -> str:
    """Return our configuration for one local service, with shorter intervals and the rules of runs."""
    config = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text())
    config["global"] = {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"}
    config["rule_files"] = [str(path) for path in sorted((DEPLOY / "prometheus" / "rules").glob("*.yml"))]
    [scrape] = config["scrape_configs"]
    del scrape["dns_sd_configs"], scrape["authorization"]
    scrape["static_configs"] = [{"targets": [url.removeprefix("http://")]}]
    [target] = config["alerting"]["alertmanagers"]
    target["static_configs"] = [{"targets": [alertmanager_url.removeprefix("http://").rstrip("/")]}]
    return yaml.safe_dump(config)


def of_alertmanager(on_call: str) -> str:
    """Return our configuration with shorter intervals and a webhook as on-call receiver."""
    config = yaml.safe_load((DEPLOY / "alertmanager" / "alertmanager.yml").read_text())
    config["route"] |= {"group_wait": "0s", "group_interval": "1s"}
    config["receivers"][0]["webhook_configs"] = [{"url": on_call}]
    return yaml.safe_dump(config)


def notifications(on_call: WebhookServer) -> list[tuple[str, str, str]]:
    """Return the name, the rule and the status of each alert received."""
    alerts = [alert for posted in on_call.posted for alert in json.loads(posted.body)["alerts"]]
    return [(alert["labels"]["alertname"], alert["labels"].get("rule", ""), alert["status"]) for alert in alerts]


def test_a_page_reaches_the_on_call_receiver_and_resolves_with_the_run(tmp_path: Path) -> None:
    service = ServiceProcess(tmp_path / "data")
    try:
        with (
            WebhookServer() as on_call,
            alertmanager(tmp_path, of_alertmanager(on_call.url)) as am,
            prometheus(tmp_path, of_prometheus(service.url, alertmanager_url=str(am.base_url))),
            service.client() as client,
        ):
            send(client, MATH, wire.Start(**ORIGIN, owner="me"))
            for step in range(N_STEPS):
                send_step(client, MATH, step=step, content=columns(seed=step, n_invalid=[1, 0, 0, 0]))
            page = ("TrmonRunIncidentPage", "")
            eventually(
                lambda: notifications(on_call), lambda received: (*page, "firing") in received, timeout_seconds=90.0
            )
            finished = [wire.ChunkCount(N_STEPS - 1, None, 1)]
            send(client, MATH, wire.Finish(**ORIGIN, sequence=1, finished=finished))
            eventually(
                lambda: notifications(on_call), lambda received: (*page, "resolved") in received, timeout_seconds=90.0
            )
            assert {received[:2] for received in notifications(on_call)} == {page}
    finally:
        service.kill()
