"""Two clients train under one name: the service names them until one of them ends."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.client.trainer import batch, settings
from tests.fixtures.receiver import WebhookServer
from tests.fixtures.service import ThreadedService
from tests.fixtures.waiting import eventually
from trmon.domain.identity import RunKey
from trmon.domain.rules.rule_yaml import builtin_rules
from trmon_client.monitor import Monitor

RUN = RunKey("math", "grpo")
BEAT_SECONDS = 0.1
TOGETHER_SECONDS = 0.5
RULES = f"""
- name: two_trainers
  severity: warn
  when: {{side_by_side: {TOGETHER_SECONDS}}}
  summary: "{{run}}: two trainers live under this name for {{value}} s: {{signal}}"
  runbook: "End one of the two."
"""


@pytest.fixture
def service(tmp_path: Path, pager: WebhookServer) -> Iterator[ThreadedService]:
    rules = tmp_path / "rules.yaml"
    rules.write_text(RULES)
    serving = ThreadedService(
        tmp_path / "data", rules_file=rules, webhook_url=pager.url, webhook_allow_hosts=("127.0.0.1",)
    )
    yield serving
    serving.stop()


def trainer(service: ThreadedService, folder: Path) -> Monitor:
    """Return a monitor of the run with fast heartbeats, as a separate job makes it."""
    return Monitor(settings(folder, url=service.url, limits={"heartbeat_seconds": BEAT_SECONDS}))


def train(*trainers: Monitor, step: int) -> None:
    """Let each trainer make a step."""
    for trainer in trainers:
        trainer.log_batch(step=step, **batch(seed=step))


def alerts(client: httpx.Client, state: str) -> list[dict[str, Any]]:
    items = client.get("/api/v1/alerts", params={"state": state}).json()["items"]
    return [item for item in items if item["rule"] == "two_trainers"]


def told(pager: WebhookServer) -> list[str]:
    messages = [json.loads(posted.body) for posted in pager.posted]
    return [alert["status"] for message in messages for alert in message["alerts"] if alert["rule"] == "two_trainers"]


def test_two_clients_under_one_name_are_told_by_name_until_one_ends(
    service: ThreadedService, pager: WebhookServer, tmp_path: Path
) -> None:
    assert "two_trainers" in {rule.name for rule in builtin_rules().rules}
    with service.client() as client, trainer(service, tmp_path / "one") as one:
        one.log_batch(step=0, **batch())
        path = f"/api/v1/runs/{RUN}"
        eventually(lambda: client.get(path).status_code, lambda status: status == 200)
        with trainer(service, tmp_path / "two") as two:
            steps = count(1)
            [alert] = eventually(lambda: train(one, two, step=next(steps)) or alerts(client, "firing"))
            names = [attempt["name"] for attempt in client.get(f"{path}/attempts").json()["items"]]
            assert len(names) == 2
            assert all(f"attempt {name} (launch {name}, rank 0)" in alert["summary"] for name in names)

            diagnosis = client.get(f"{path}/diagnosis").json()
            assert [found["rule"] for found in diagnosis["circumstances"]] == ["two_trainers"]
            verdict = client.get(path).json()["status"]["verdict"]
            assert verdict["why"].startswith("two trainers since step")
            two.close()
        eventually(lambda: alerts(client, "resolved"))
        eventually(lambda: told(pager), lambda found: found == ["firing", "resolved"])
        one.log_batch(step=1000, **batch())
    assert told(pager) == ["firing", "resolved"]
