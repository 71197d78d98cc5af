"""The service with a real Alertmanager: an alert appears there, stays while it fires, and resolves."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import numpy as np
import pytest

from tests.fixtures.alertmanager import active, alertmanager
from tests.fixtures.messages import ORIGIN, columns
from tests.fixtures.service import ThreadedService
from tests.fixtures.trainer import MATH, send, send_step
from tests.fixtures.waiting import eventually
from trmon_client.core import wire

RULES = """
- name: reward_hack
  severity: page
  immune_steps: 0
  when: {signal: reward_mean, above: 0.9}
  labels: {team: rl}
  summary: "{run}: the mean reward is {value} at step {step} (limit {threshold})"
  runbook: "Read some responses."
"""
LABELS = {
    "alertname": "reward_hack",
    "service": "trmon",
    "project": "math",
    "run": "grpo",
    "severity": "page",
    "owner": "ana",
    "team": "rl",
}


@pytest.fixture
def api(tmp_path: Path) -> Iterator[httpx.Client]:
    with alertmanager(tmp_path) as client:
        yield client


@pytest.fixture
def service(tmp_path: Path, api: httpx.Client) -> Iterator[httpx.Client]:
    """A client of a service that sends to the Alertmanager once a second."""
    rules = tmp_path / "rules.yaml"
    rules.write_text(RULES)
    started = ThreadedService(
        tmp_path / "data",
        rules_file=rules,
        public_url="http://localhost:8642",
        alertmanager_url=str(api.base_url),
        alertmanager_repeat_seconds=1.0,
        webhook_allow_hosts="127.0.0.1",
    )
    with started.client() as client:
        send(client, MATH, wire.Start(**ORIGIN, owner="ana"))
        yield client
    started.stop()


def train(service: httpx.Client, *rewards: float, first_step: int = 0) -> None:
    """Report a step for each mean reward; the last one is judged when the next has come."""
    for step, reward in enumerate(rewards, start=first_step):
        send_step(service, MATH, step=step, content=columns(reward=np.full(4, reward)))


@pytest.mark.server("prometheus-alertmanager")
def test_an_alert_appears_is_sent_again_and_resolves(service: httpx.Client, api: httpx.Client) -> None:
    train(service, 0.5, 0.95, 0.97)
    [alert] = eventually(lambda: active(api))
    assert alert["labels"] == LABELS
    assert alert["annotations"] == {
        "summary": "math/grpo: the mean reward is 0.95 at step 1 (limit 0.9)",
        "value": "0.95",
        "threshold": "0.9",
        "step": "1",
        "runbook": "Read some responses.",
    }
    assert alert["generatorURL"] == "http://localhost:8642/runs/math/grpo?step=1"

    [again] = eventually(lambda: active(api), lambda found: found[0]["endsAt"] > alert["endsAt"])
    assert (again["labels"], again["startsAt"]) == (alert["labels"], alert["startsAt"])

    train(service, 0.5, 0.5, first_step=3)
    eventually(lambda: active(api), lambda found: found == [])
