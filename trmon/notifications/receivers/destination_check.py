"""Destinations: the address a webhook may connect to, checked after its name was resolved."""

from __future__ import annotations

import socket
from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import ip_address

import httpx

Resolve = Callable[[str, int], list[str]]
"""Returns the addresses of a host name."""


class DestinationForbidden(Exception):
    """The destination is one that webhooks may not reach."""


@dataclass(frozen=True, slots=True)
class Destination:
    """A checked request target: the URL by address, and the name that Host and the certificate go by."""

    url: httpx.URL
    host_header: str
    server_name: str


def resolve_host(host: str, port: int) -> list[str]:
    """Return the addresses of a host. Errors: OSError."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


def check_destination(url: httpx.URL, *, allow_hosts: frozenset[str], resolve: Resolve = resolve_host) -> Destination:
    """Return where to connect for a URL.

    The name is resolved once and the very address that was checked is connected to, so that a second answer of
    the name server cannot lead elsewhere. Every address of the name must be public unless its host is allowed.
    Errors: Forbidden; OSError where the name does not resolve.
    """
    allowed = url.host in allow_hosts
    if url.scheme != "https" and not (allowed and url.scheme == "http"):
        raise DestinationForbidden("a webhook must be https; TRMON_WEBHOOK_ALLOW_HOSTS lets a host use http")
    port = url.port or (443 if url.scheme == "https" else 80)
    addresses = resolve(url.host, port)
    for address in addresses:
        if not allowed and not _is_public(address):
            raise DestinationForbidden(
                f"the webhook's host resolves to {address}, which is not public; "
                "TRMON_WEBHOOK_ALLOW_HOSTS allows a host whatever its address"
            )
    return Destination(
        url=url.copy_with(host=addresses[0]), host_header=url.netloc.decode("ascii"), server_name=url.host
    )


def _is_public(address: str) -> bool:
    ip = ip_address(address.partition("%")[0])
    mapped = getattr(ip, "ipv4_mapped", None)
    ip = mapped or ip
    return ip.is_global and not ip.is_multicast
