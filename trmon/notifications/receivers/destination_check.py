"""Checks the address that a receiver connects to, after its host name is resolved."""

from __future__ import annotations

import socket
from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import ip_address

import httpx

Resolve = Callable[[str, int], list[str]]
"""Returns the addresses of a host and port."""


class DestinationForbidden(Exception):
    """Receivers may not connect to the destination."""


@dataclass(frozen=True, slots=True)
class Destination:
    """A checked destination: the URL with its address, and the host name for the Host header and the certificate."""

    url: httpx.URL
    host_header: str
    server_name: str


def resolve_host(host: str, port: int) -> list[str]:
    """Return the addresses of a host. Errors: OSError."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


def check_destination(url: httpx.URL, *, allow_hosts: frozenset[str], resolve: Resolve = resolve_host) -> Destination:
    """Return the destination of a URL.

    The name is resolved once, and the connection uses the checked address, so that a second DNS response cannot
    change it. All addresses of the name must be public unless the host is allowed.
    Errors: DestinationForbidden; OSError if the name does not resolve.
    """
    allowed = url.host in allow_hosts
    if url.scheme != "https" and not (allowed and url.scheme == "http"):
        raise DestinationForbidden("a webhook URL must be https; TRMON_WEBHOOK_ALLOW_HOSTS allows a host to use http")
    port = url.port or (443 if url.scheme == "https" else 80)
    address = checked_address(url.host, port, name="webhook's host", is_allowed=allowed, resolve=resolve)
    return Destination(url=url.copy_with(host=address), host_header=url.netloc.decode("ascii"), server_name=url.host)


def checked_address(host: str, port: int, *, name: str, is_allowed: bool, resolve: Resolve = resolve_host) -> str:
    """Return the address to connect to. Args: name: of the host, for the error; is_allowed: with any address.

    Errors: DestinationForbidden unless all addresses are public or the host is allowed; OSError if it does not resolve.
    """
    addresses = resolve(host, port)
    for address in addresses:
        if not is_allowed and not _is_public(address):
            raise DestinationForbidden(
                f"the {name} resolves to {address}, which is not public; "
                "TRMON_WEBHOOK_ALLOW_HOSTS allows a host with any address"
            )
    return addresses[0]


def _is_public(address: str) -> bool:
    ip = ip_address(address.partition("%")[0])
    mapped = getattr(ip, "ipv4_mapped", None)
    ip = mapped or ip
    return ip.is_global and not ip.is_multicast
