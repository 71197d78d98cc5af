"""Where a notification may go: public addresses over https, or allowed hosts; a local listener hears nothing."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from ipaddress import ip_address

import httpx
import pytest

from tests.notify.posting import notification
from trmon.notify.receiver import DeliveryOutcome, DestinationForbidden, HttpPost, Resolve, checked_urls, resolve_host
from trmon.notify.webhook import Webhook

URL, PUBLIC = httpx.URL("https://hooks.example/x"), "93.184.215.14"


def resolves_to(*addresses: str) -> Resolve:
    return lambda _host, _port: list(addresses)


@pytest.mark.parametrize(
    "address",
    [
        *("127.0.0.1", "10.1.2.3", "169.254.169.254", "100.64.0.1", "0.0.0.0", "224.0.0.1", "::1", "fe80::1%eth0"),
        *("fd00::1", "ff02::1", "::ffff:169.254.169.254", "::127.0.0.1", "::ffff:0:127.0.0.1", "64:ff9b::127.0.0.1"),
        *("64:ff9b:1:7f00:0:100::", "2002:7f00:1::1", "2001:0:4136:e378:8000:63bf:80ff:fffe", "fec0::1", "4000::1"),
    ],
)
def test_an_address_that_is_not_public_is_refused_also_among_public_ones(address: str) -> None:
    for addresses in ((PUBLIC, address), (address, PUBLIC)):
        with pytest.raises(DestinationForbidden, match="not public"):
            checked_urls(URL, allow_hosts=frozenset(), resolve=resolves_to(*addresses))


@pytest.mark.parametrize(
    "address",
    [PUBLIC, "2606:2800:21f:cb07:6820:80da:af6b:8b2c", "64:ff9b::93.184.215.14", "2002:5db8:d70e::1"],
)
def test_a_public_address_is_used(address: str) -> None:
    [found] = checked_urls(URL, allow_hosts=frozenset(), resolve=resolves_to(address))
    assert found == URL.copy_with(host=address)
    assert str(ip_address(found.host)) == str(ip_address(address))


def test_every_address_of_a_host_is_a_destination_in_the_order_of_the_resolver() -> None:
    resolve = resolves_to("2606:2800:21f:cb07:6820:80da:af6b:8b2c", PUBLIC)
    found = checked_urls(URL, allow_hosts=frozenset(), resolve=resolve)
    assert [url.host for url in found] == ["2606:2800:21f:cb07:6820:80da:af6b:8b2c", PUBLIC]


@pytest.mark.parametrize("url", ["http://hooks.example/x", "ftp://hooks.example/x", "file:///etc/passwd"])
def test_a_url_must_be_https_unless_its_host_is_allowed(url: str) -> None:
    with pytest.raises(DestinationForbidden, match="must be https"):
        checked_urls(httpx.URL(url), allow_hosts=frozenset(), resolve=resolves_to(PUBLIC))


def test_an_allowed_host_may_have_any_address() -> None:
    url = httpx.URL("http://alerts.local:9093/hook?x=1")
    [found] = checked_urls(url, allow_hosts=frozenset({"alerts.local"}), resolve=resolves_to("10.0.0.9"))
    assert str(found) == "http://10.0.0.9:9093/hook?x=1"


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
    *("127.0.0.1", "127.1", "127.0.1", "2130706433", "0x7f000001", "0x7f.0.0.1", "0177.0.0.1", "017700000001", "0"),
    *("0.0.0.0", "[::1]", "[::]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[::127.0.0.1]", "[64:ff9b::7f00:1]"),
    *("[0:0:0:0:0:0:0:1]", "localhost", "LOCALHOST", "localhost.", "me@127.0.0.1", "example.com@127.0.0.1"),
    *("\uff11\uff12\uff17.0.0.1", "127.0.0.1.", "127\u30020\u30020\u30021"),
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


def test_an_allowed_host_does_not_allow_others(listener: socket.socket) -> None:
    port = listener.getsockname()[1]
    for host in ("127.0.0.1", "localhost.alerts.local", "[::1]"):
        url = f"http://{host}:{port}/hook"
        resolve = resolve_host if host != "localhost.alerts.local" else lambda _host, _port: ["127.0.0.1"]
        assert deliver(url, allow_hosts=frozenset({"alerts.local"}), resolve=resolve) is DeliveryOutcome.REFUSED
