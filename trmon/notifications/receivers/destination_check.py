"""Checks the addresses that a receiver connects to, after its host name is resolved."""

from __future__ import annotations

import socket
from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address

import httpx

Resolve = Callable[[str, int], list[str]]
"""Returns the addresses of a host and port."""
GLOBAL_UNICAST = IPv6Network("2000::/3")
NAT64 = IPv6Network("64:ff9b::/96")


class DestinationForbidden(Exception):
    """Receivers may not connect to the destination."""


@dataclass(frozen=True, slots=True)
class Destination:
    """A checked destination: the URL with each address in turn, and the host name for Host header and certificate."""

    urls: tuple[httpx.URL, ...]
    host_header: str
    server_name: str


def resolve_host(host: str, port: int) -> list[str]:
    """Return the addresses of a host. Errors: OSError."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


def check_destination(url: httpx.URL, *, allow_hosts: frozenset[str], resolve: Resolve = resolve_host) -> Destination:
    """Return the destination of a URL.

    The name is resolved once, and connections use the checked addresses, so that a second DNS response cannot
    change them. All addresses of the name must be public unless the host is allowed.
    Errors: DestinationForbidden; OSError if the name does not resolve.
    """
    allowed = url.host in allow_hosts
    if url.scheme != "https" and not (allowed and url.scheme == "http"):
        raise DestinationForbidden("a webhook URL must be https; TRMON_WEBHOOK_ALLOW_HOSTS allows a host to use http")
    port = url.port or (443 if url.scheme == "https" else 80)
    addresses = checked_addresses(url.host, port, name="webhook's host", is_allowed=allowed, resolve=resolve)
    urls = tuple(url.copy_with(host=address) for address in addresses)
    return Destination(urls=urls, host_header=url.netloc.decode("ascii"), server_name=url.host)


def checked_addresses(
    host: str, port: int, *, name: str, is_allowed: bool, resolve: Resolve = resolve_host
) -> list[str]:
    """Return the addresses to try in turn. Args: name: of the host, for the error; is_allowed: with any address.

    Errors: DestinationForbidden unless all addresses are public or the host is allowed; OSError if it does not resolve.
    """
    addresses = resolve(host, port)
    for address in addresses:
        if not is_allowed and not _is_public(address):
            raise DestinationForbidden(
                f"the {name} resolves to {address}, which is not public; "
                "TRMON_WEBHOOK_ALLOW_HOSTS allows a host with any address"
            )
    return addresses


def _is_public(address: str) -> bool:
    """Return whether an address is public; one that carries an IPv4 address leads there, so that one counts."""
    ip: IPv4Address | IPv6Address = ip_address(address.partition("%")[0])
    if isinstance(ip, IPv6Address):
        embedded = _embedded_ipv4(ip)
        if embedded is None and ip not in GLOBAL_UNICAST:
            return False
        ip = embedded or ip
    return ip.is_global and not ip.is_multicast


def _embedded_ipv4(ip: IPv6Address) -> IPv4Address | None:
    """Return the address behind an IPv4-mapped, a 6to4 or a NAT64 address; other forms are not public at all."""
    if ip in NAT64:
        return IPv4Address(int(ip) & 0xFFFFFFFF)
    return ip.ipv4_mapped or ip.sixtofour
