"""The page on alerts: the fields of a webhook and the verification snippet, checked against a real request."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.domain.alerts.alert_builders import delivery_of
from tests.domain.memory_log import MemoryLog
from tests.fixtures.receiver import Posted, WebhookServer
from tests.notify.posting import ALERT, notification
from trmon.domain.alerts.delivery import DeliveryContext
from trmon.domain.alerts.muting import enrich_notification
from trmon.domain.alerts.notification import NotifiedCause
from trmon.notify.receiver import HttpPost
from trmon.notify.webhook import Webhook, webhook_message

PAGE = Path(__file__).parents[2] / "docs" / "alerts.md"
SENT_AT = 1_800_000_000.0
CAUSE = NotifiedCause(
    rule="stale_rollouts", title="stale rollouts", last_good_step=19, remedy="", options={}, runbook_url=None
)


@pytest.fixture(scope="module")
def posted() -> Posted:
    """What a webhook with the secret "swordfish" sends."""
    with WebhookServer() as server:
        webhook = Webhook(HttpPost(server.url, allow_hosts=frozenset({"127.0.0.1"})), secret="swordfish")
        webhook.deliver([notification()], now=SENT_AT)
        webhook.close()
        return server.posted[0]


@pytest.fixture(scope="module")
def is_from_trmon() -> Callable[..., bool]:
    """The function on the page."""
    [snippet] = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    found: dict[str, Any] = {}
    exec(compile(snippet, str(PAGE), "exec"), found)
    verify: Callable[..., bool] = found["is_from_trmon"]
    return verify


def test_the_body_has_the_fields_that_the_page_shows() -> None:
    [shown] = re.findall(r"```json\n(.*?)```", PAGE.read_text(), re.DOTALL)
    context = DeliveryContext(run=MemoryLog().stored_run, alerts=(ALERT,), tried={})
    notification = enrich_notification(delivery_of(ALERT), context, now=SENT_AT)
    alert = msgspec.structs.replace(notification.alert, labels={})
    incident = msgspec.structs.replace(notification, alert=alert, cause=CAUSE)
    message = webhook_message([incident])
    assert shape(json.loads(shown)) == shape(json.loads(msgspec.json.encode(message)))


def shape(value: Any) -> Any:
    """Return a document with the names of its fields and without their values."""
    if isinstance(value, dict):
        return {name: shape(field) for name, field in value.items()}
    return [shape(item) for item in value] if isinstance(value, list) else None


@pytest.mark.parametrize(
    ("secret", "added", "later_seconds", "expected"),
    [
        pytest.param("swordfish", b"", 10.0, True, id="what was sent"),
        pytest.param("guess", b"", 10.0, False, id="another secret"),
        pytest.param("swordfish", b" ", 10.0, False, id="another body"),
        pytest.param("swordfish", b"", 301.0, False, id="sent again much later"),
    ],
)
def test_the_snippet_accepts_only_the_request_that_was_sent(
    posted: Posted,
    is_from_trmon: Callable[..., bool],
    secret: str,
    added: bytes,
    later_seconds: float,
    expected: bool,
) -> None:
    body, now = posted.body + added, SENT_AT + later_seconds
    assert is_from_trmon(secret, posted.headers, body, now=now) is expected
