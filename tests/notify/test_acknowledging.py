"""Acknowledgements, against real receivers: those that were sent an alert are sent who has it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from tests.fixtures.alerting import crash, deliveries
from tests.fixtures.mail_server import MailServer
from tests.fixtures.messages import ORIGIN
from tests.fixtures.receiver import WebhookServer
from tests.fixtures.running_service import Serve, bearer, make_token
from tests.fixtures.service import ThreadedService
from tests.fixtures.trainer import MATH, send
from tests.fixtures.waiting import eventually
from trmon.domain.access import Scope
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


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_fetching_the_links_of_a_message_changes_nothing(on_call: OnCall, method: str) -> None:
    with on_call.service.client() as client:
        alert = crash(client)
        eventually(lambda: on_call.channel.posted)
        [attachment] = json.loads(on_call.channel.posted[0].body)["attachments"]
        links = [button["url"] for button in attachment["actions"]]
        assert [link.partition("action=")[2].partition("&")[0] for link in links] == ["", "acknowledge", "silence"]
        for link in links:
            assert client.request(method, link.removeprefix(PUBLIC)).status_code == 200
        [after] = client.get("/api/v1/alerts", params={"state": "firing"}).json()["items"]
        assert (after["identity"], after["ack"], after["silenced"]) == (alert["identity"], None, None)
        assert client.get("/api/v1/silences").json()["items"] == []
