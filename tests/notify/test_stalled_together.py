"""Twelve runs go silent at once: people get one message about all of them, an incident tool one for each."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.fixtures.alerting import deliveries
from tests.fixtures.mail_server import MailServer
from tests.fixtures.receiver import WebhookServer
from tests.fixtures.running_service import Serve
from tests.fixtures.trainer import send_step, train
from tests.fixtures.waiting import eventually
from trmon.domain.identity import RunKey

RUNS = [RunKey("math", f"run-{i:02}") for i in range(12)]
FLOOR_SECONDS = 10.0


@pytest.fixture
def mail() -> Iterator[MailServer]:
    with MailServer(security="none") as server:
        yield server


@pytest.fixture
def client(serve: Serve, hook: WebhookServer, pager: WebhookServer, mail: MailServer) -> Iterator[httpx.Client]:
    """A client of a service in which twelve runs have stalled."""
    hook.statuses = [503, 200]
    service = serve(
        webhook_url=hook.url,
        pagerduty_key="k" * 32,
        pagerduty_url=pager.url,
        webhook_allow_hosts="127.0.0.1",
        smtp_host="127.0.0.1",
        smtp_port=mail.port,
        smtp_security="none",
        email_from="trmon@example.org",
        email_to="ana@example.org",
        stall_floor_seconds=FLOOR_SECONDS,
        delivery_backoff_seconds=0.1,
    )
    with service.client() as client:
        for key in RUNS:
            train(client, key, steps=range(2), end=False)
        for key in RUNS:  # their last reports within a moment, however slow the machine is
            send_step(client, key, step=2)
        yield client


def messages(server: WebhookServer) -> list[dict[str, Any]]:
    return [json.loads(posted.body) for posted in server.posted]


def states(client: httpx.Client) -> list[str]:
    return [delivery["state"] for delivery in deliveries(client, limit="100")]


def test_runs_that_stall_together_are_one_message_and_so_is_their_return(
    client: httpx.Client, hook: WebhookServer, pager: WebhookServer, mail: MailServer
) -> None:
    eventually(lambda: states(client), lambda found: len(found) == 36 and set(found) <= {"standing", "delivered"})
    failed, told = messages(hook)
    assert failed == told
    assert told["summary"].startswith("12 runs stalled within")
    assert {alert["run"]["run"] for alert in told["alerts"]} == {key.run for key in RUNS}
    assert len({event["dedup_key"] for event in messages(pager)}) == len(pager.posted) == 12
    [received] = mail.received
    assert str(received.message["Subject"]).startswith("[firing] 12 runs stalled within")

    for key in RUNS:
        send_step(client, key, step=3)
    eventually(lambda: len(mail.received) == 2 and len(hook.posted) == 3)
    assert messages(hook)[2]["summary"] == "12 runs are no longer stalled"
    assert mail.received[1].message["Subject"] == "[resolved] 12 runs are no longer stalled"
    eventually(lambda: [event["event_action"] for event in messages(pager)].count("resolve") == 12)
