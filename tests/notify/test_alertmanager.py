"""Alertmanager, against the real server: alerts have constant labels, last while they are repeated, and resolve."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import httpx
import pytest
from msgspec import structs

from tests.fixtures.prometheus import active, alertmanager
from tests.fixtures.waiting import eventually
from tests.notify.posting import notification
from trmon.config.settings import Settings
from trmon.domain.alerts.alert import INCIDENT_RULE, AlertState, TransitionReason
from trmon.domain.severity import Severity
from trmon.notify.alertmanager import PATH, Alertmanager
from trmon.notify.receiver import DeliveryOutcome, DeliveryResult, HttpPost
from trmon.notify.registry import DeliveryCheck

SHIPPED = Path(__file__).parents[2] / "deploy" / "alertmanager" / "alertmanager.yml"

LABELS = {
    "alertname": "mask_rate",
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
def receiver(api: httpx.Client) -> Iterator[Alertmanager]:
    http_post = HttpPost(str(api.base_url.join(PATH)), allow_hosts=frozenset({"127.0.0.1"}))
    receiver = Alertmanager(http_post)
    yield receiver
    receiver.close()


@pytest.mark.server("prometheus-alertmanager")
def test_an_alert_fires_until_it_resolves(api: httpx.Client, receiver: Alertmanager) -> None:
    now = time.time()
    for value in (0.75, math.inf):
        firing = notification(since_at=now - 60, updated_at=now, value=value)
        assert receiver.deliver([firing], now=now) == DeliveryResult(DeliveryOutcome.DELIVERED)
    [alert] = eventually(lambda: active(api))
    assert alert["labels"] == LABELS
    assert alert["annotations"] | {"summary": ""} == {
        "summary": "",
        "value": "inf",
        "threshold": "0.5",
        "step": "7",
        "runbook": "Find the drift first.",
        "state": "firing",
    }
    assert alert["generatorURL"] == "https://trmon.example/runs/math/grpo?step=7"

    resolved = notification(state=AlertState.RESOLVED, since_at=now - 60, updated_at=now)
    assert receiver.deliver([resolved], now=now) == DeliveryResult(DeliveryOutcome.DELIVERED)
    eventually(lambda: active(api), lambda alerts: alerts == [])


@pytest.mark.server("prometheus-alertmanager")
def test_an_alert_that_is_not_repeated_ends(api: httpx.Client, receiver: Alertmanager) -> None:
    long_ago = time.time() - 300
    firing = notification(since_at=long_ago, updated_at=long_ago)
    assert receiver.deliver([firing], now=long_ago) == DeliveryResult(DeliveryOutcome.DELIVERED)
    assert active(api) == []
    assert receiver.deliver([firing], now=time.time()) == DeliveryResult(DeliveryOutcome.DELIVERED)
    assert [alert["labels"] for alert in eventually(lambda: active(api))] == [LABELS]


@pytest.mark.server("prometheus-alertmanager")
def test_an_incident_that_becomes_a_page_ends_its_warning(api: httpx.Client, receiver: Alertmanager) -> None:
    now = time.time()
    incident = partial(notification, rule=INCIDENT_RULE, since_at=now - 60, updated_at=now)
    assert receiver.deliver([incident(severity=Severity.WARN)], now=now).outcome is DeliveryOutcome.DELIVERED
    eventually(lambda: active(api), lambda alerts: [one["labels"]["severity"] for one in alerts] == ["warn"])
    page = structs.replace(incident(severity=Severity.PAGE), reason=TransitionReason.WORSENED.value)
    assert receiver.deliver([page], now=now).outcome is DeliveryOutcome.DELIVERED
    eventually(lambda: active(api), lambda alerts: [one["labels"]["severity"] for one in alerts] == ["page"])


SENDING = "route: {receiver: team}\nreceivers: [{name: team, webhook_configs: [{url: 'http://127.0.0.1:9/secret'}]}]\n"


@pytest.mark.server("prometheus-alertmanager")
@pytest.mark.parametrize(
    ("config", "problem"),
    [
        pytest.param(
            SHIPPED.read_text(), "Alertmanager takes alerts, but none of its receivers sends", id="as shipped"
        ),
        pytest.param(SENDING, "", id="with a receiver"),
    ],
)
def test_an_alertmanager_that_sends_nothing_is_a_problem(tmp_path: Path, config: str, problem: str) -> None:
    with alertmanager(tmp_path, config) as api:
        settings = Settings(alertmanager_url=str(api.base_url), webhook_allow_hosts=("127.0.0.1",))  # type: ignore[arg-type]
        with closing(DeliveryCheck(settings)) as delivery:
            assert delivery.find() == problem


def test_an_alertmanager_that_does_not_answer_is_none() -> None:
    settings = Settings(alertmanager_url="http://127.0.0.1:9", webhook_allow_hosts=("127.0.0.1",))  # type: ignore[arg-type]
    with closing(DeliveryCheck(settings)) as delivery:
        assert delivery.find() == ""
