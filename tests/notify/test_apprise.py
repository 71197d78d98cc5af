"""Apprise, with its json:// service against a local server."""

from __future__ import annotations

import json
import logging
import socket
from collections.abc import Iterator
from io import StringIO

import pytest

from tests.fixtures.receiver import WebhookServer
from tests.notify.posting import notification
from trmon.domain.errors import NotReady
from trmon.notify.apprise import Apprise
from trmon.notify.receiver import DeliveryOutcome, DeliveryResult

SECRET = "s3cr3t-t0ken"


@pytest.fixture
def logged() -> Iterator[StringIO]:
    """What the service would log."""
    handler = logging.StreamHandler(StringIO())
    logging.getLogger().addHandler(handler)
    yield handler.stream
    logging.getLogger().removeHandler(handler)


def url_of(server: WebhookServer, *, extra: str = "") -> str:
    return f"json://user:{SECRET}@127.0.0.1:{server.port}/{SECRET}{extra}"


def test_a_name_mentions_nobody() -> None:
    with WebhookServer() as server:
        result = Apprise(url_of(server)).deliver([notification(summary="@everyone <!channel>")], now=0.0)
    body = json.loads(server.posted[0].body)
    text = body["message"]
    assert result == DeliveryResult(DeliveryOutcome.DELIVERED)
    assert (body["title"], body["type"]) == ("[firing] math/grpo: mask_rate", "failure")
    assert "everyone" in text
    assert not [mention for mention in ("@everyone", "<!channel>") if mention in text]


@pytest.mark.parametrize(
    ("status", "outcome"),
    [(500, DeliveryOutcome.RETRY), (429, DeliveryOutcome.RETRY), (404, DeliveryOutcome.REFUSED)],
)
def test_a_refusal_has_a_reason_without_the_url_and_is_not_logged(
    status: int, outcome: DeliveryOutcome, logged: StringIO
) -> None:
    with WebhookServer(statuses=[status]) as server:
        result = Apprise(url_of(server)).deliver([notification()], now=0.0)
    assert (result.outcome, f"error={status}" in result.reason) == (outcome, True)
    assert SECRET not in result.reason + logged.getvalue()


def test_a_part_of_the_url_in_a_reason_is_hidden() -> None:
    with WebhookServer(statuses=[500]) as server:
        receiver = Apprise(f"json://Internal:{SECRET}@127.0.0.1:{server.port}")
        assert "**** server error" in receiver.deliver([notification()], now=0.0).reason


def test_a_redirect_is_not_followed_even_if_the_url_asks_for_it() -> None:
    with WebhookServer() as other, WebhookServer(statuses=[307], headers={"Location": other.url}) as server:
        result = Apprise(url_of(server, extra="?redirect=yes")).deliver([notification()], now=0.0)
    assert (result.outcome, other.posted) == (DeliveryOutcome.REFUSED, [])


def test_a_service_that_is_away_or_hangs_is_tried_again() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        hung = Apprise(f"json://127.0.0.1:{port}", timeout_seconds=0.1).deliver([notification()], now=0.0)
    away = Apprise(f"json://127.0.0.1:{port}").deliver([notification()], now=0.0)
    assert [hung, away] == [DeliveryResult(DeliveryOutcome.RETRY, "no connection")] * 2


@pytest.mark.parametrize("url", [f"nosuch://{SECRET}", SECRET, "discord://short", "", f"json://[::1/{SECRET}"])
def test_a_url_that_apprise_does_not_understand_is_refused_without_showing_it(url: str, logged: StringIO) -> None:
    with pytest.raises(NotReady, match="is not a URL that Apprise understands") as refused:
        Apprise(url)
    assert SECRET not in str(refused.value) + logged.getvalue()
