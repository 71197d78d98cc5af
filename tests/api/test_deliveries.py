"""Deliveries over HTTP: dead ones are listed."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from tests.fixtures.alerting import crash, deliveries
from tests.fixtures.receiver import WebhookServer
from tests.fixtures.running_service import Serve
from tests.fixtures.waiting import eventually


@pytest.fixture
def refusing() -> Iterator[WebhookServer]:
    with WebhookServer(statuses=[404]) as server:
        yield server


def test_dead_deliveries_are_listed_with_the_reason_but_without_the_address(
    serve: Serve, refusing: WebhookServer
) -> None:
    service = serve(slack_url=refusing.url, webhook_allow_hosts="127.0.0.1")
    with service.client() as client:
        alert = crash(client)
        [dead] = eventually(lambda: deliveries(client, state="dead"))
        assert deliveries(client, state="delivered") == []
        assert refusing.url not in client.get("/api/v1/deliveries").text
    assert (dead["project"], dead["run"], dead["receiver"]) == ("math", "grpo", "slack")
    assert (dead["told_state"], dead["attempts"], dead["last_error"]) == ("firing", 1, "answered 404")
    assert dead["body"]["alert"]["identity"] == alert["identity"]
    assert len(refusing.posted) == 1


def test_an_unknown_state_is_refused(client: httpx.Client) -> None:
    answer = client.get("/api/v1/deliveries", params={"state": "lost"})
    assert (answer.status_code, answer.json()["field"]) == (400, "state")


def test_deliveries_are_listed_by_project_and_run(serve: Serve, refusing: WebhookServer) -> None:
    service = serve(slack_url=refusing.url, webhook_allow_hosts="127.0.0.1")
    with service.client() as client:
        crash(client)
        eventually(lambda: deliveries(client, project="math", run="grpo"))
        assert deliveries(client, project="math", run="other") == deliveries(client, project="code") == []
