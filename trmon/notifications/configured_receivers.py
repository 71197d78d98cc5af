"""Receivers: those the settings name, by their names."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

from pydantic import SecretStr

from trmon.config.settings import Settings
from trmon.domain.alerts.alert import AlertState
from trmon.domain.alerts.routing import Routes
from trmon.domain.alerts.test_notification import sample_delivery
from trmon.domain.model.errors import NotReady
from trmon.notifications.receivers.alertmanager import PATH, Alertmanager
from trmon.notifications.receivers.http_post import HttpPost
from trmon.notifications.receivers.pagerduty import PagerDuty
from trmon.notifications.receivers.receiver import DeliveryResult, Receiver
from trmon.notifications.receivers.slack import Slack
from trmon.notifications.receivers.webhook import Webhook


def receivers_of(settings: Settings) -> dict[str, Receiver]:
    """Return the receivers that are configured."""

    def peer(url: str) -> HttpPost:
        allowed, timeout = frozenset(settings.webhook_allow_hosts), settings.delivery_timeout_seconds
        return HttpPost(url, allow_hosts=allowed, timeout_seconds=timeout)

    found: dict[str, Receiver] = {}
    if settings.webhook_url is not None:
        secret = _shown(settings.webhook_secret)
        found["webhook"] = Webhook(peer(settings.webhook_url.get_secret_value()), secret=secret)
    if settings.slack_url is not None:
        found["slack"] = Slack(peer(settings.slack_url.get_secret_value()))
    if settings.pagerduty_key is not None:
        key = settings.pagerduty_key.get_secret_value()
        found["pagerduty"] = PagerDuty(peer(settings.pagerduty_url), routing_key=key)
    if settings.alertmanager_url is not None:
        base = settings.alertmanager_url.get_secret_value().rstrip("/")
        repeat_seconds = settings.alertmanager_repeat_seconds
        found["alertmanager"] = Alertmanager(peer(base + PATH), repeat_seconds=repeat_seconds)
    return found


def routes_of(settings: Settings) -> Routes:
    """Return which of the configured receivers hear of whose runs."""
    return Routes(receivers=settings.receivers, by_owner=settings.routes)


def send_test_notification(settings: Settings, *, now: float) -> Iterator[tuple[str, AlertState, DeliveryResult]]:
    """Send a trial through every receiver, once and at once; yields what became of each. Errors: NotReady."""
    receivers = receivers_of(settings)
    if not receivers:
        raise NotReady(
            "no receiver is configured: set TRMON_WEBHOOK_URL, TRMON_SLACK_URL, TRMON_PAGERDUTY_KEY "
            "or TRMON_ALERTMANAGER_URL"
        )
    for name, receiver in receivers.items():
        with closing(receiver):
            for state in (AlertState.FIRING, AlertState.RESOLVED):
                delivery = sample_delivery(state, receiver=name, public_url=settings.public_url, now=now)
                yield name, state, receiver.deliver([delivery], now=now)


def _shown(secret: SecretStr | None) -> str | None:
    return None if secret is None else secret.get_secret_value()
