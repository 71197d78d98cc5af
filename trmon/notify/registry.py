"""Builds the receivers and routes that the settings configure."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import structlog

from trmon.config.settings import RECEIVERS, Settings
from trmon.domain.alerts.alert import AlertState
from trmon.domain.alerts.delivery import Routes
from trmon.domain.alerts.notification import sample_notification
from trmon.domain.errors import NotReady
from trmon.notify.alertmanager import PATH, Alertmanager
from trmon.notify.apprise import Apprise
from trmon.notify.email import Email
from trmon.notify.pagerduty import PagerDuty
from trmon.notify.pictures import Pictures
from trmon.notify.receiver import DeliveryResult, HttpPost, Receiver
from trmon.notify.slack import Slack
from trmon.notify.webhook import Webhook
from trmon.store import Store

log = structlog.get_logger(__name__)


def receivers_of(settings: Settings) -> dict[str, Receiver]:
    """Return the configured receivers by name.

    Errors: NotReady for a webhook secret, a CA file or an Apprise URL that is not valid, or without Apprise.
    """

    def http_post(url: str) -> HttpPost:
        allowed, timeout = frozenset(settings.webhook_allow_hosts), settings.delivery_timeout_seconds
        return HttpPost(url, allow_hosts=allowed, timeout_seconds=timeout)

    receivers: dict[str, Receiver] = {}
    if settings.webhook_url is not None:
        secret = None if settings.webhook_secret is None else settings.webhook_secret.get_secret_value()
        receivers["webhook"] = Webhook(http_post(settings.webhook_url.get_secret_value()), secret=secret)
    if settings.slack_url is not None:
        receivers["slack"] = Slack(http_post(settings.slack_url.get_secret_value()))
    if settings.pagerduty_key is not None:
        key = settings.pagerduty_key.get_secret_value()
        receivers["pagerduty"] = PagerDuty(http_post(settings.pagerduty_url), routing_key=key)
    if settings.alertmanager_url is not None:
        base = settings.alertmanager_url.get_secret_value().rstrip("/")
        repeat_seconds = settings.alertmanager_repeat_seconds
        receivers["alertmanager"] = Alertmanager(http_post(base + PATH), repeat_seconds=repeat_seconds)
    if settings.smtp_host is not None:
        receivers["email"] = Email(settings)
    for name, url in settings.apprise_urls.items():
        try:
            receivers[name] = Apprise(url.get_secret_value(), timeout_seconds=settings.delivery_timeout_seconds)
        except NotReady as error:
            raise NotReady(f"TRMON_APPRISE_URLS: {name}: {error}") from error
    return receivers


def pictures_of(settings: Settings, store: Store) -> Pictures:
    """Return what draws the pictures of messages; Slack's secret URL is the one that its links are signed with."""
    secret = None if settings.slack_url is None else settings.slack_url.get_secret_value()
    return Pictures(store, public_url=settings.public_url, secret=secret)


def routes_of(settings: Settings) -> Routes:
    """Return the routes from owners to receivers."""
    return Routes(receivers=settings.receivers, by_owner=settings.routes)


NO_RECEIVER = "no receiver of alerts is configured"
ADVICE = "docs/alerts.md lists receivers; `trmon notify test` tests them"


class DeliveryCheck:
    """What is known to keep alerts from people: no receiver, or one that passes them on to nobody."""

    def __init__(self, settings: Settings) -> None:
        """Errors: NotReady, as of receivers."""
        self._receivers = receivers_of(settings)
        self.problem = ""
        """Of the last check; empty: nothing is known."""

    def find(self) -> str:
        """Ask the receivers, which blocks for a bounded time, and return the problem."""
        problems = [receiver.problem() for receiver in self._receivers.values()]
        return next(iter(problems), NO_RECEIVER) if all(problems) else ""

    def check(self) -> None:
        """Find the problem again, and log it where it is new."""
        found, before = self.find(), self.problem
        self.problem = found
        if found and found != before:
            log.warning("alerts_reach_nobody", reason=found, advice=ADVICE)

    def close(self) -> None:
        """Close the receivers' connections."""
        for receiver in self._receivers.values():
            receiver.close()


def send_test_notification(settings: Settings, *, now: float) -> Iterator[tuple[str, AlertState, DeliveryResult]]:
    """Send a test alert to every receiver, without the outbox, and yield each result. Errors: NotReady."""
    receivers = receivers_of(settings)
    if not receivers:
        enabling = ", ".join(f"TRMON_{setting.upper()}" for setting in RECEIVERS.values())
        raise NotReady(f"{NO_RECEIVER}: set {enabling} or TRMON_APPRISE_URLS")
    for name, receiver in receivers.items():
        with closing(receiver):
            for state in (AlertState.FIRING, AlertState.RESOLVED):
                notification = sample_notification(state, receiver=name, public_url=settings.public_url, now=now)
                yield name, state, receiver.deliver([notification], now=now)
