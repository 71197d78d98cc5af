"""A run is deleted or renamed while its alert fires: no incident stays open at a receiver."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.fixtures.alerting import crash
from tests.fixtures.alertmanager import active, alertmanager
from tests.fixtures.receiver import WebhookServer
from tests.fixtures.running_service import Serve
from tests.fixtures.service import ThreadedService
from tests.fixtures.waiting import eventually

RUN = "/api/v1/runs/math/grpo"


def paging(serve: Serve, pager: WebhookServer, hook: WebhookServer, **more: Any) -> ThreadedService:
    """Return a service that notifies PagerDuty and a webhook."""
    return serve(
        pagerduty_key="k" * 32,
        pagerduty_url=pager.url,
        webhook_url=hook.url,
        webhook_allow_hosts="127.0.0.1",
        delivery_backoff_seconds=0.05,
        **more,
    )


def incidents(pager: WebhookServer) -> list[tuple[str, str]]:
    """Return the events at PagerDuty: action and incident."""
    events = [json.loads(posted.body) for posted in pager.posted]
    return [(event["event_action"], event["dedup_key"]) for event in events]


def statuses(hook: WebhookServer) -> list[tuple[str, str]]:
    """Return the notifications at the webhook: state and reason."""
    return [(alert["status"], alert["reason"]) for posted in hook.posted for alert in json.loads(posted.body)["alerts"]]


def test_a_deletion_resolves_the_notified_alerts(serve: Serve, pager: WebhookServer, hook: WebhookServer) -> None:
    service = paging(serve, pager, hook)
    with service.client() as client:
        crash(client)
        eventually(lambda: len(pager.posted) + len(hook.posted), lambda n: n == 2)
        assert client.delete(RUN).status_code == 204
        eventually(lambda: len(pager.posted) + len(hook.posted), lambda n: n == 4)
        assert client.get("/api/v1/alerts").json()["items"] == []
    incident = "trmon:math/grpo:crashed:"
    assert incidents(pager) == [("trigger", incident), ("resolve", incident)]
    assert [state for state, _ in statuses(hook)] == ["firing", "resolved"]
    assert statuses(hook)[-1][1] == "the run was deleted"


def test_a_receiver_in_an_outage_is_notified_after_a_restart(
    serve: Serve, pager: WebhookServer, hook: WebhookServer
) -> None:
    service = paging(serve, pager, hook)
    with service.client() as client:
        crash(client)
        eventually(lambda: len(pager.posted) + len(hook.posted), lambda n: n == 2)
        pager.statuses[:] = [503]
        assert client.delete(RUN).status_code == 204
        eventually(lambda: len(pager.posted), lambda n: n >= 2)
    service.stop()
    pager.statuses[:] = [200]
    told = len(pager.posted)
    service.start()
    eventually(lambda: len(pager.posted), lambda n: n > told)
    assert incidents(pager)[-1][0] == "resolve"


@pytest.mark.server("prometheus-alertmanager")
def test_an_alertmanager_drops_the_alert(serve: Serve, tmp_path: Path) -> None:
    with alertmanager(tmp_path) as api:
        service = serve(alertmanager_url=str(api.base_url), webhook_allow_hosts="127.0.0.1")
        with service.client() as client:
            crash(client)
            eventually(lambda: active(api))
            assert client.delete(RUN).status_code == 204
            eventually(lambda: active(api), lambda found: found == [])


def test_a_new_run_under_the_same_name_sends_new_notifications(
    serve: Serve, pager: WebhookServer, hook: WebhookServer
) -> None:
    service = paging(serve, pager, hook)
    with service.client() as client:
        _crash_and_delete(client, pager, n_told=2)
        _crash_and_delete(client, pager, n_told=4)
    assert [action for action, _ in incidents(pager)] == ["trigger", "resolve"] * 2


def _crash_and_delete(client: httpx.Client, pager: WebhookServer, *, n_told: int) -> None:
    crash(client)
    eventually(lambda: len(pager.posted), lambda n: n == n_told - 1)
    assert client.delete(RUN).status_code == 204
    eventually(lambda: len(pager.posted), lambda n: n == n_told)


def test_a_renamed_run_is_notified_under_its_new_name_and_resolved_under_the_old(
    serve: Serve, pager: WebhookServer, hook: WebhookServer
) -> None:
    old, new = "trmon:math/grpo:crashed:", "trmon:math/other:crashed:"
    service = paging(serve, pager, hook)
    with service.client() as client:
        crash(client)
        eventually(lambda: len(pager.posted) + len(hook.posted), lambda n: n == 2)
        assert client.patch(RUN, json={"name": "other"}).status_code == 200
        eventually(lambda: incidents(pager), lambda told: sorted(told[1:]) == [("resolve", old), ("trigger", new)])
        assert client.delete("/api/v1/runs/math/other").status_code == 204
        eventually(lambda: incidents(pager)[-1], lambda told: told == ("resolve", new))
