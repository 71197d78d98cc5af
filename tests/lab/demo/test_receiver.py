"""The demo's webhook receiver stores what the service posts."""

from __future__ import annotations

from msgspec import structs

from tests.notify.posting import notification
from trmon.domain.alerts.alert import AlertState
from trmon.domain.identity import RunKey
from trmon.lab.demo.processes import Pager
from trmon.notify.receiver import DeliveryOutcome, DeliveryResult, HttpPost
from trmon.notify.webhook import Webhook


def test_the_receiver_stores_every_alert_with_its_run() -> None:
    first = notification(run=RunKey("demo", "ill"))
    second = structs.replace(first, status=AlertState.RESOLVED)
    with Pager() as pager:
        webhook = Webhook(HttpPost(pager.url, allow_hosts=frozenset({"127.0.0.1"})))
        assert webhook.deliver([first, second], now=0.0) == DeliveryResult(DeliveryOutcome.DELIVERED)
        webhook.close()
    assert [(alert["run"], alert["rule"], alert["status"]) for alert in pager.alerts] == [
        ("ill", "mask_rate", "firing"),
        ("ill", "mask_rate", "resolved"),
    ]
