"""A run changes hands while its alert fires: who was told hears of its end, and the new owner of what still fires."""

from __future__ import annotations

import json
from collections.abc import Iterator

import httpx
import pytest

from tests.fixtures.messages import ORIGIN
from tests.fixtures.receiver import WebhookServer
from tests.fixtures.running_service import Serve
from tests.fixtures.trainer import MATH, send, send_step
from tests.fixtures.waiting import eventually
from trmon_client.core import wire

RUN = "/api/v1/runs/math/grpo"
PAGING_STEPS = 22
"""In a run's first steps a crash only warns, and nobody is reminded."""


@pytest.fixture
def pager() -> Iterator[WebhookServer]:
    """Where ana's alerts go, a PagerDuty."""
    with WebhookServer() as server:
        yield server


@pytest.fixture
def hook() -> Iterator[WebhookServer]:
    """Where bo's alerts go, a webhook."""
    with WebhookServer() as server:
        yield server


@pytest.fixture
def client(serve: Serve, pager: WebhookServer, hook: WebhookServer) -> Iterator[httpx.Client]:
    """A client of a service in which ana's run has crashed, of which her pager has heard."""
    service = serve(
        pagerduty_key="k" * 32,
        pagerduty_url=pager.url,
        webhook_url=hook.url,
        webhook_allow_hosts="127.0.0.1",
        routes={"ana": ("pagerduty",), "bo": ("webhook",)},
        remind_seconds=0.3,
        delivery_backoff_seconds=0.05,
    )
    with service.client() as client:
        send(client, MATH, wire.Start(**ORIGIN, owner="ana"))
        for step in range(PAGING_STEPS):
            send_step(client, MATH, step=step)
        eventually(lambda: client.get(f"{RUN}/batches").json().get("items", []), lambda found: len(found) > 20)
        send(client, MATH, wire.Finish(**ORIGIN, sequence=9, outcome="crashed"))
        eventually(lambda: actions(pager))
        assert told(hook) == []
        yield client


def actions(pager: WebhookServer) -> list[str]:
    """Return what the pager was told, without what it was told again."""
    found = [json.loads(posted.body)["event_action"] for posted in pager.posted]
    return [action for i, action in enumerate(found) if action not in found[:i]]


def told(hook: WebhookServer) -> list[tuple[str, str, str]]:
    """Return what the webhook was told: the state, why, and of whose run."""
    messages = [json.loads(posted.body) for posted in hook.posted]
    return [
        (alert["status"], alert["reason"], message["run"]["owner"])
        for message in messages
        for alert in message["alerts"]
    ]


def restart(client: httpx.Client, **start: str) -> None:
    """Let another launch of the trainer go on, which ends the alert of the crash."""
    send(client, MATH, wire.Start(attempt="second", launch="launch-2", sent_at=9e9, **start))


def test_the_new_owner_hears_of_what_fires_and_both_of_its_end(
    client: httpx.Client, pager: WebhookServer, hook: WebhookServer
) -> None:
    assert client.patch(RUN, json={"owner": "bo"}).status_code == 200
    eventually(lambda: told(hook))
    assert told(hook)[0] == ("firing", "it fires, and the run has another owner now", "bo")
    restart(client)
    eventually(lambda: actions(pager), lambda found: found == ["trigger", "resolve"])
    eventually(lambda: told(hook)[-1][0], lambda state: state == "resolved")


def test_the_former_owner_is_reminded_no_more(client: httpx.Client, pager: WebhookServer, hook: WebhookServer) -> None:
    eventually(lambda: len(pager.posted), lambda n: n >= 2)
    client.patch(RUN, json={"owner": "bo"})
    eventually(lambda: len(told(hook)), lambda n: n >= 1)
    reminded = len(pager.posted)
    eventually(lambda: len(told(hook)), lambda n: n >= 4)
    assert len(pager.posted) <= reminded + 1


def test_a_change_to_the_same_receivers_tells_nobody_anew(
    client: httpx.Client, pager: WebhookServer, hook: WebhookServer
) -> None:
    client.patch(RUN, json={"owner": "ana", "tags": ["x"]})
    restart(client)
    eventually(lambda: actions(pager), lambda found: found == ["trigger", "resolve"])
    assert told(hook) == []


def test_who_was_never_told_hears_of_no_end(client: httpx.Client, pager: WebhookServer, hook: WebhookServer) -> None:
    restart(client)
    eventually(lambda: actions(pager), lambda found: found == ["trigger", "resolve"])
    query = {"state": "muted"}
    [muted] = eventually(lambda: client.get("/api/v1/deliveries", params=query).json()["items"])
    assert (muted["receiver"], muted["muted"]) == ("webhook", "nobody was told that the alert fired")
    assert told(hook) == []


def test_a_trainer_that_names_another_owner_hands_the_run_over_too(
    client: httpx.Client, pager: WebhookServer, hook: WebhookServer
) -> None:
    send(client, MATH, wire.Start(**ORIGIN, sequence=1, owner="bo"))
    eventually(lambda: told(hook), lambda found: found[:1] and found[0][0] == "firing")
    assert actions(pager) == ["trigger"]
