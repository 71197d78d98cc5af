"""Receivers that hang or are gone: the API shows it, and other receivers are not delayed."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from tests.fixtures.alerting import CRASH, notifying
from tests.fixtures.receiver import WebhookServer
from tests.fixtures.running_service import Serve
from tests.fixtures.trainer import MATH, send, train
from tests.fixtures.waiting import eventually
from trmon.config.settings import Settings
from trmon.domain.alerts.delivery import RetryPolicy
from trmon.domain.identity import RunKey


def hangs(server: WebhookServer) -> None:
    server.hold = threading.Event()


def is_gone(server: WebhookServer) -> None:
    server.statuses = [410]


@pytest.mark.parametrize(
    ("break_receiver", "state", "error", "outcome"),
    [
        pytest.param(hangs, "due", "ReadTimeout", "retried", id="it hangs"),
        pytest.param(is_gone, "dead", "answered 410", "dead", id="it is gone"),
    ],
)
def test_a_bad_receiver_is_listed_and_delays_neither_other_receivers_nor_ingest(
    serve: Serve, hook: WebhookServer, pager: WebhookServer, break_receiver: Any, state: str, error: str, outcome: str
) -> None:
    break_receiver(hook)
    timeout = 0.3 if break_receiver is hangs else 30.0
    service = notifying(
        serve, hook, slack_url=pager.url, delivery_timeout_seconds=timeout, delivery_backoff_seconds=0.2
    )
    with service.client() as client:
        train(client, end=False)
        send(client, MATH, CRASH)
        eventually(lambda: pager.posted)
        train(client, RunKey("math", "other"))
        [delivery] = eventually(
            lambda: [d for d in client.get("/api/v1/deliveries").json()["items"] if d["receiver"] == "webhook"],
            lambda listed: listed and listed[0]["last_error"],
        )
        assert (delivery["state"], delivery["last_error"], delivery["attempts"] > 0) == (state, error, True)
        counted = [line for line in client.get("/metrics").text.splitlines() if f'outcome="{outcome}"' in line]
        assert [float(line.split()[-1]) > 0 for line in counted] == [True]
    # Again only where its answer came after the timeout.
    assert all(message == pager.posted[0] for message in pager.posted)


def test_retries_go_on_for_more_than_an_hour() -> None:
    settings = Settings()
    retry = RetryPolicy(max_attempts=settings.delivery_max_attempts, backoff_seconds=settings.delivery_backoff_seconds)
    waits = [retry.wait_seconds(attempts) for attempts in range(1, retry.max_attempts)]
    assert sum(waits) > 3600.0
