"""No spelling of an internal address, and no answer of DNS, leads a notification there: a listener hears nothing."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from tests.fixtures.receiver import WebhookServer
from tests.notify.posting import notification
from trmon.notify.receiver import DeliveryOutcome, HttpPost, resolve_host
from trmon.notify.webhook import Webhook

PUBLIC = "93.184.215.14"


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    """A socket on all addresses of this machine, which no test may connect to."""
    with socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True) as server:
        server.setblocking(False)
        yield server
        with pytest.raises(BlockingIOError):
            server.accept()


def deliver(url: str, **options: object) -> DeliveryOutcome:
    webhook = Webhook(HttpPost(url, timeout_seconds=0.5, **options))  # type: ignore[arg-type]
    try:
        return webhook.deliver([notification()], now=0.0).outcome
    finally:
        webhook.close()


SPELLINGS = [
    *(
        "127.0.0.1",
        "127.1",
        "127.0.1",
        "2130706433",
        "0x7f000001",
        "0x7f.0.0.1",
        "0177.0.0.1",
        "017700000001",
        "0",
        "0.0.0.0",
    ),
    *(
        "[::1]",
        "[::]",
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
        "[::127.0.0.1]",
        "[64:ff9b::7f00:1]",
        "[0:0:0:0:0:0:0:1]",
    ),
    *("localhost", "LOCALHOST", "localhost.", "me@127.0.0.1", "example.com@127.0.0.1", "\uff11\uff12\uff17.0.0.1"),
    *("127.0.0.1.", "127\u30020\u30020\u30021"),
]


@pytest.mark.parametrize("scheme", ["https", "http"])
@pytest.mark.parametrize("host", SPELLINGS)
def test_no_spelling_of_this_machine_is_connected_to(listener: socket.socket, host: str, scheme: str) -> None:
    url = f"{scheme}://{host}:{listener.getsockname()[1]}/hook"
    try:
        outcome = deliver(url)
    except ValueError:
        return  # it is no URL of a webhook
    assert outcome is not DeliveryOutcome.DELIVERED


@pytest.mark.parametrize("internal", ["127.0.0.1", "::1", "::ffff:127.0.0.1"])
def test_a_name_that_is_rebound_after_the_check_is_asked_once(listener: socket.socket, internal: str) -> None:
    answers = [[PUBLIC], [internal], [internal]]
    asked: list[str] = []

    def resolve(host: str, _port: int) -> list[str]:
        asked.append(host)
        return answers[len(asked) - 1]

    outcome = deliver(f"https://rebound.example:{listener.getsockname()[1]}/hook", resolve=resolve)
    assert (outcome, asked) == (DeliveryOutcome.RETRY, ["rebound.example"])


@pytest.mark.parametrize("internal", ["127.0.0.1", "::1", "::ffff:127.0.0.1", "64:ff9b::7f00:1"])
def test_one_internal_answer_among_public_ones_is_enough_to_refuse(listener: socket.socket, internal: str) -> None:
    for answers in ([internal, PUBLIC], [PUBLIC, internal]):
        url = f"https://mixed.example:{listener.getsockname()[1]}/hook"
        assert deliver(url, resolve=lambda _host, _port, found=answers: found) is DeliveryOutcome.REFUSED


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_to_an_internal_address_is_not_followed(
    listener: socket.socket, hook: WebhookServer, status: int
) -> None:
    hook.statuses[:] = [status]
    hook.headers["Location"] = f"http://127.0.0.1:{listener.getsockname()[1]}/latest/meta-data"
    assert deliver(hook.url, allow_hosts=frozenset({"127.0.0.1"})) is DeliveryOutcome.REFUSED
    assert len(hook.posted) == 1


def test_an_allowed_host_does_not_allow_others(listener: socket.socket) -> None:
    port = listener.getsockname()[1]
    for host in ("127.0.0.1", "localhost.alerts.local", "[::1]"):
        url = f"http://{host}:{port}/hook"
        resolve = resolve_host if host != "localhost.alerts.local" else lambda _host, _port: ["127.0.0.1"]
        assert deliver(url, allow_hosts=frozenset({"alerts.local"}), resolve=resolve) is DeliveryOutcome.REFUSED
