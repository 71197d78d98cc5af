"""A run gets another owner while its alert fires: notified receivers get the end, the new owner's the firing alert."""

from __future__ import annotations

import json
from collections.abc import Iterator

import httpx
import pytest

from tests.fixtures.alerting import notifying
from tests.fixtures.messages import ORIGIN
from tests.fixtures.receiver import WebhookServer
from tests.fixtures.running_service import Serve
from tests.fixtures.trainer import MATH, send, send_step
from tests.fixtures.waiting import eventually
from trmon_client.core import wire

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


def test_a_trainer_that_names_another_owner_changes_it_too(
    client: httpx.Client, pager: WebhookServer, hook: WebhookServer
) -> None:
    send(client, MATH, wire.Start(**ORIGIN, sequence=1, owner="bo"))
    eventually(lambda: alerts(hook), lambda found: found[:1] and found[0][0] == "firing")
    assert actions(pager) == ["trigger"]
