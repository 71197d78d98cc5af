"""Alerts of a running service, against real receivers: acknowledged, handed to a new owner, beside one that hangs."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from tests.fixtures.alerting import CRASH, crash, deliveries, notifying
from tests.fixtures.mail_server import MailServer
from tests.fixtures.messages import ORIGIN
from tests.fixtures.receiver import WebhookServer
from tests.fixtures.running_service import Serve, bearer, make_token
from tests.fixtures.service import ThreadedService
from tests.fixtures.trainer import MATH, send, send_step, train
from tests.fixtures.waiting import eventually
from trmon.config.settings import Settings
from trmon.domain.access import Scope
from trmon.domain.alerts.delivery import RetryPolicy
from trmon.domain.identity import RunKey
from trmon_client.core import wire

PUBLIC = "http://127.0.0.1:8642"


@dataclass(frozen=True)
class OnCall:
    """A service with a pager, a channel and a mailbox."""

    service: ThreadedService
    pager: WebhookServer
    channel: WebhookServer
    mailbox: MailServer

    def paged(self) -> list[tuple[str, str]]:
        """Return the action and the key of each event that the pager got."""
        events: list[dict[str, Any]] = [json.loads(one.body) for one in self.pager.posted]
        return [(event["event_action"], event["dedup_key"]) for event in events]

    def told(self) -> list[str]:
        """Return what the channel was told, without the links."""
        return [json.loads(one.body)["blocks"][0]["text"]["text"] for one in self.channel.posted]


@pytest.fixture
def on_call(serve: Serve) -> Iterator[OnCall]:
    with ExitStack() as stack:
        pager, channel = (stack.enter_context(WebhookServer()) for _ in range(2))
        mailbox = stack.enter_context(MailServer(security="none"))
        service = serve(
            pagerduty_key="R0UT1NG",
            pagerduty_url=pager.url,
            slack_url=channel.url,
            webhook_allow_hosts="127.0.0.1",
            smtp_host="127.0.0.1",
            smtp_port=mailbox.port,
            smtp_security="none",
            email_from="trmon@example.org",
            email_to="ana@example.org",
            public_url=PUBLIC,
        )
        yield OnCall(service, pager, channel, mailbox)


def acknowledge(client: httpx.Client, alert: dict[str, Any], secret: str, **given: str) -> httpx.Response:
    headers = bearer(secret)
    return client.post(f"/api/v1/alerts/{alert['identity']}/ack", json=given, headers=headers)


def test_the_pager_the_channel_and_the_mailbox_are_told_who_has_an_alert_and_that_it_is_over(on_call: OnCall) -> None:
    with on_call.service.client() as client:
        alert = crash(client)
        eventually(lambda: (on_call.pager.posted, on_call.channel.posted, on_call.mailbox.received), all)
        eventually(lambda: {one["state"] for one in deliveries(client)} & {"due"}, lambda waiting: not waiting)
        secret = make_token(client, "oncall", Scope.ADMIN)
        client.headers.update(bearer(secret))
        acknowledge(client, alert, secret, author="ana", note="restarting").raise_for_status()
        eventually(lambda: len(on_call.mailbox.received), (2).__eq__)
        eventually(lambda: len(on_call.channel.posted), (2).__eq__)
        eventually(lambda: len(on_call.pager.posted), (2).__eq__)
        send(client, MATH, wire.Start(**{**ORIGIN, "attempt": "second", "launch": "2"}))
        eventually(lambda: len(on_call.pager.posted), (3).__eq__)
        eventually(lambda: len(on_call.channel.posted), (3).__eq__)
    key = "trmon:math/grpo:crashed:"
    assert on_call.paged() == [("trigger", key), ("acknowledge", key), ("resolve", key)]
    _, taken, over = on_call.told()
    assert taken.startswith(":raised_hand: *acknowledged* math/grpo")
    assert "\nAcknowledged by ana (token oncall) at " in taken
    assert taken.endswith(" UTC: restarting")
    assert over.startswith(":white_check_mark: *resolved*")
    assert "\nAcknowledged by ana (token oncall) at " in over
    mail = on_call.mailbox.received[1].message
    assert mail["Subject"] == "[acknowledged] math/grpo: crashed"
    assert mail["References"] == on_call.mailbox.received[0].message["References"]


def test_an_alert_that_was_sent_to_nobody_is_acknowledged_in_silence(serve: Serve) -> None:
    with serve().client() as client:
        alert = crash(client)
        client.post(f"/api/v1/alerts/{alert['identity']}/ack", json={"author": "ana"}).raise_for_status()
        assert deliveries(client) == []


def test_fetching_the_links_of_a_message_changes_nothing(on_call: OnCall) -> None:
    with on_call.service.client() as client:
        alert = crash(client)
        eventually(lambda: on_call.channel.posted)
        [attachment] = json.loads(on_call.channel.posted[0].body)["attachments"]
        links = [button["url"] for button in attachment["actions"]]
        assert [link.partition("action=")[2].partition("&")[0] for link in links] == ["", "acknowledge", "silence"]
        for link in links:
            for method in ("GET", "HEAD"):
                assert client.request(method, link.removeprefix(PUBLIC)).status_code == 200
        [after] = client.get("/api/v1/alerts", params={"state": "firing"}).json()["items"]
        assert (after["identity"], after["ack"], after["silenced"]) == (alert["identity"], None, None)
        assert client.get("/api/v1/silences").json()["items"] == []


def test_a_receiver_that_hangs_is_listed_and_delays_neither_other_receivers_nor_ingest(
    serve: Serve, hook: WebhookServer, pager: WebhookServer
) -> None:
    hook.hold = threading.Event()
    service = notifying(serve, hook, slack_url=pager.url, delivery_timeout_seconds=0.3, delivery_backoff_seconds=0.2)
    with service.client() as client:
        train(client, end=False)
        send(client, MATH, CRASH)
        eventually(lambda: pager.posted)
        train(client, RunKey("math", "other"))
        [delivery] = eventually(
            lambda: [one for one in deliveries(client) if one["receiver"] == "webhook"],
            lambda listed: listed and listed[0]["last_error"],
        )
        assert (delivery["state"], delivery["last_error"], delivery["attempts"] > 0) == ("due", "ReadTimeout", True)
        counted = [line for line in client.get("/metrics").text.splitlines() if 'outcome="retried"' in line]
        assert [float(line.split()[-1]) > 0 for line in counted] == [True]
    # Again only where its answer came after the timeout.
    assert all(message == pager.posted[0] for message in pager.posted)


def test_retries_go_on_for_more_than_an_hour() -> None:
    settings = Settings()
    retry = RetryPolicy(max_attempts=settings.delivery_max_attempts, backoff_seconds=settings.delivery_backoff_seconds)
    waits = [retry.wait_seconds(attempts) for attempts in range(1, retry.max_attempts)]
    assert sum(waits) > 3600.0


RUN = "/api/v1/runs/math/grpo"
PAGING_STEPS = 22
"""In a run's first steps a crash is only a warning, which is not repeated."""


@pytest.fixture
def client(serve: Serve, pager: WebhookServer, hook: WebhookServer) -> Iterator[httpx.Client]:
    """A client of a service in which ana's run has crashed and her pager was notified."""
    routes = {"ana": ("pagerduty",), "bo": ("webhook",)}
    service = notifying(serve, hook, pager, routes=routes, remind_seconds=0.3)
    with service.client() as client:
        send(client, MATH, wire.Start(**ORIGIN, owner="ana"))
        for step in range(PAGING_STEPS):
            send_step(client, MATH, step=step)
        eventually(lambda: client.get(f"{RUN}/batches").json().get("items", []), lambda found: len(found) > 20)
        send(client, MATH, wire.Finish(**ORIGIN, sequence=9, outcome="crashed"))
        eventually(lambda: actions(pager))
        assert alerts(hook) == []
        yield client


def actions(pager: WebhookServer) -> list[str]:
    """Return the events that the pager got, without repetitions."""
    events = [json.loads(posted.body)["event_action"] for posted in pager.posted]
    return [action for i, action in enumerate(events) if action not in events[:i]]


def alerts(hook: WebhookServer) -> list[tuple[str, str, str]]:
    """Return the alerts that the webhook got: the state, the reason, and the run's owner."""
    messages = [json.loads(posted.body) for posted in hook.posted]
    return [
        (alert["status"], alert["reason"], message["run"]["owner"])
        for message in messages
        for alert in message["alerts"]
    ]


@pytest.mark.slow
def test_the_new_owner_gets_the_firing_alert_and_the_former_one_its_end_without_reminders(
    client: httpx.Client, pager: WebhookServer, hook: WebhookServer
) -> None:
    eventually(lambda: len(pager.posted), lambda n: n >= 2)
    assert client.patch(RUN, json={"owner": "bo"}).status_code == 200
    eventually(lambda: alerts(hook))
    assert alerts(hook)[0] == ("firing", "it fires, and the run has another owner now", "bo")
    n_before = len(pager.posted)
    eventually(lambda: len(alerts(hook)), lambda n: n >= 4)
    assert len(pager.posted) <= n_before + 1
    send(client, MATH, wire.Start(attempt="second", launch="launch-2", sent_at=9e9))
    eventually(lambda: actions(pager), lambda found: found == ["trigger", "resolve"])
    eventually(lambda: alerts(hook)[-1][0], lambda state: state == "resolved")


@pytest.mark.slow
def test_a_trainer_that_names_another_owner_changes_it_too(
    client: httpx.Client, pager: WebhookServer, hook: WebhookServer
) -> None:
    send(client, MATH, wire.Start(**ORIGIN, sequence=1, owner="bo"))
    eventually(lambda: alerts(hook), lambda found: found[:1] and found[0][0] == "firing")
    assert actions(pager) == ["trigger"]
