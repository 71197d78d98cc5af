"""Where a webhook may connect: public addresses over https, or allowed hosts."""

from __future__ import annotations

from ipaddress import ip_address

import httpx
import pytest

from trmon.notify.receiver import DestinationForbidden, Resolve, checked_urls

URL = httpx.URL("https://hooks.example/x")


def resolves_to(*addresses: str) -> Resolve:
    return lambda _host, _port: list(addresses)


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "10.1.2.3",
        "169.254.169.254",
        "100.64.0.1",
        "0.0.0.0",
        "224.0.0.1",
        "::1",
        "fe80::1%eth0",
        "fd00::1",
        "ff02::1",
        "::ffff:169.254.169.254",
        "::127.0.0.1",
        "::ffff:0:127.0.0.1",
        "64:ff9b::127.0.0.1",
        "64:ff9b:1:7f00:0:100::",
        "2002:7f00:1::1",
        "2001:0:4136:e378:8000:63bf:80ff:fffe",
        "fec0::1",
        "4000::1",
    ],
)
def test_an_address_that_is_not_public_is_refused(address: str) -> None:
    with pytest.raises(DestinationForbidden, match="not public"):
        checked_urls(URL, allow_hosts=frozenset(), resolve=resolves_to("93.184.215.14", address))


@pytest.mark.parametrize(
    "address",
    ["93.184.215.14", "2606:2800:21f:cb07:6820:80da:af6b:8b2c", "64:ff9b::93.184.215.14", "2002:5db8:d70e::1"],
)
def test_a_public_address_is_used(address: str) -> None:
    [found] = checked_urls(URL, allow_hosts=frozenset(), resolve=resolves_to(address))
    assert found == URL.copy_with(host=address)
    assert str(ip_address(found.host)) == str(ip_address(address))


def test_every_address_of_a_host_is_a_destination_in_the_order_of_the_resolver() -> None:
    resolve = resolves_to("2606:2800:21f:cb07:6820:80da:af6b:8b2c", "93.184.215.14")
    found = checked_urls(URL, allow_hosts=frozenset(), resolve=resolve)
    assert [url.host for url in found] == ["2606:2800:21f:cb07:6820:80da:af6b:8b2c", "93.184.215.14"]


@pytest.mark.parametrize("url", ["http://hooks.example/x", "ftp://hooks.example/x", "file:///etc/passwd"])
def test_a_url_must_be_https_unless_its_host_is_allowed(url: str) -> None:
    with pytest.raises(DestinationForbidden, match="must be https"):
        checked_urls(httpx.URL(url), allow_hosts=frozenset(), resolve=resolves_to("93.184.215.14"))


def test_an_allowed_host_may_have_any_address() -> None:
    url = httpx.URL("http://alerts.local:9093/hook?x=1")
    [found] = checked_urls(url, allow_hosts=frozenset({"alerts.local"}), resolve=resolves_to("10.0.0.9"))
    assert str(found) == "http://10.0.0.9:9093/hook?x=1"
