"""Common parts of receivers: their port, the HTTP client, and the check of the addresses that they connect to."""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from enum import Enum
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from typing import Any

import httpx

from trmon.config import settings
from trmon.domain.alerts.notification import Notification

Resolve = Callable[[str, int], list[str]]
"""Returns the addresses of a host and port."""
GLOBAL_UNICAST = IPv6Network("2000::/3")
NAT64 = IPv6Network("64:ff9b::/96")
TIMEOUT_SECONDS = 10.0
MAX_ANSWER_BYTES = 1 << 20
RETRIED_STATUSES = frozenset({408, 425, 429})


class DeliveryOutcome(Enum):
    """The outcome of one attempt."""

    DELIVERED = "delivered"
    RETRY = "retry"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class DeliveryResult:
    """The outcome of one attempt and its reason, which never contains the receiver's URL: that may be a secret.

    RETRY may succeed later. REFUSED cannot: the receiver rejects the request, or our own checks do. DELIVERED with a
    reason reached some recipients of several.
    """

    outcome: DeliveryOutcome
    reason: str = ""


class Receiver:
    """A service that takes notifications.

    `is_grouping`: whether one message may hold several alerts of a run; otherwise each alert is delivered alone.
    `merges_runs`: whether one may report the same rule on several runs; False where each alert has its own identity.
    `shows_pictures`: whether its message may have a picture of the illness.
    `repeat_seconds`: how often a firing alert is sent again, for receivers that drop an alert which is not.
    """

    is_grouping = True
    merges_runs = True
    shows_pictures = False
    repeat_seconds: float | None = None

    def deliver(self, notifications: Sequence[Notification], *, now: float) -> DeliveryResult:
        """Send notifications of one run, or merged ones of several, together.

        Blocks for a bounded time and returns network errors as a result.
        """
        raise NotImplementedError

    def problem(self) -> str:
        """Return why a delivered notification would reach no person; empty if nothing is known against it."""
        return ""

    def close(self) -> None:
        """Close the connections, if any outlast a message."""


class DestinationForbidden(Exception):
    """Receivers may not connect to the destination."""


def network_reason(error: Exception) -> str:
    """Return the kind of a network error and what the system says of it, without the URL."""
    cause = error if isinstance(error, OSError) else error.__context__
    while cause is not None and not (isinstance(cause, OSError) and cause.strerror):
        cause = cause.__context__
    said = cause.strerror if isinstance(cause, OSError) else None
    return f"{type(error).__name__}: {said}" if said else type(error).__name__


def resolve_host(host: str, port: int) -> list[str]:
    """Return the addresses of a host. Errors: OSError."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


def checked_urls(url: httpx.URL, *, allow_hosts: frozenset[str], resolve: Resolve) -> list[httpx.URL]:
    """Return a URL with each address of its host in turn.

    The name is resolved once, and connections use the checked addresses, so that a second DNS response cannot
    change them. All addresses of the name must be public unless the host is allowed.
    Errors: DestinationForbidden; OSError if the name does not resolve.
    """
    allowed = url.host in allow_hosts
    if url.scheme != "https" and not (allowed and url.scheme == "http"):
        raise DestinationForbidden("a webhook URL must be https; TRMON_WEBHOOK_ALLOW_HOSTS allows a host to use http")
    port = url.port or (443 if url.scheme == "https" else 80)
    addresses = checked_addresses(url.host, port, name="webhook's host", is_allowed=allowed, resolve=resolve)
    return [url.copy_with(host=address) for address in addresses]


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
        # Behind a NAT64, an IPv4-mapped or a 6to4 address; other forms are not public at all.
        embedded = IPv4Address(int(ip) & 0xFFFFFFFF) if ip in NAT64 else ip.ipv4_mapped or ip.sixtofour
        if embedded is None and ip not in GLOBAL_UNICAST:
            return False
        ip = embedded or ip
    return ip.is_global and not ip.is_multicast


class HttpPost:
    """Posts to one URL; follows no redirects and connects only to addresses that were checked, in turn."""

    def __init__(
        self,
        url: str,
        *,
        allow_hosts: frozenset[str] = frozenset(),
        timeout_seconds: float = TIMEOUT_SECONDS,
        resolve: Resolve = resolve_host,
    ) -> None:
        self._url = settings.parse_webhook_url(url)
        self._allow_hosts = allow_hosts
        self._resolve = resolve
        self._timeout_seconds = timeout_seconds
        self._client = httpx.Client(timeout=timeout_seconds, follow_redirects=False, trust_env=False)

    def post(self, body: bytes, *, headers: Mapping[str, str] | None = None) -> DeliveryResult:
        """Post JSON. A 2xx is delivered; 408, 425, 429, 5xx and network errors may be retried."""
        try:
            urls = checked_urls(self._url, allow_hosts=self._allow_hosts, resolve=self._resolve)
            return self._post_to(urls, body, headers=headers or {})
        except DestinationForbidden as error:
            return DeliveryResult(DeliveryOutcome.REFUSED, str(error))
        except (httpx.HTTPError, OSError) as error:
            return DeliveryResult(DeliveryOutcome.RETRY, network_reason(error))

    def read(self, relative: str) -> bytes:
        """Return the answer, up to 1 MiB, at a URL relative to this one; empty if it cannot be had."""
        found = bytearray()
        try:
            urls = checked_urls(self._url.join(relative), allow_hosts=self._allow_hosts, resolve=self._resolve)
            with self._client.stream("GET", urls[0], **self._to_host) as response:
                for piece in response.iter_bytes() if response.status_code == 200 else ():
                    found += piece
                    if len(found) > MAX_ANSWER_BYTES:
                        break
        except (DestinationForbidden, httpx.HTTPError, OSError):
            return b""
        return bytes(found)

    @property
    def _to_host(self) -> dict[str, Any]:
        """What a request to a checked address needs in order to reach the host."""
        headers = {"Host": self._url.netloc.decode("ascii"), "Content-Type": "application/json"}
        return {"headers": headers, "extensions": {"sni_hostname": self._url.host}}

    def _post_to(self, urls: Sequence[httpx.URL], body: bytes, *, headers: Mapping[str, str]) -> DeliveryResult:
        """Post to the first address that accepts a connection; all share the time for connecting."""
        timeout = httpx.Timeout(self._timeout_seconds, connect=self._timeout_seconds / len(urls))
        failure: httpx.HTTPError | None = None
        for url in urls:
            try:
                sent = self._to_host
                sent["headers"] = {**headers, **sent["headers"]}
                with self._client.stream("POST", url, content=body, timeout=timeout, **sent) as response:
                    return result_of_status(response.status_code)
            except (httpx.ConnectError, httpx.ConnectTimeout) as error:
                failure = error
        raise failure or OSError("the host has no address")

    def close(self) -> None:
        """Close the connections."""
        self._client.close()


class HttpReceiver(Receiver):
    """A receiver that posts its messages to one URL."""

    def __init__(self, http_post: HttpPost) -> None:
        self._http_post = http_post

    def close(self) -> None:
        self._http_post.close()


def result_of_status(status: int) -> DeliveryResult:
    """Return the result that an HTTP status means."""
    if 200 <= status < 300:
        return DeliveryResult(DeliveryOutcome.DELIVERED)
    if status in RETRIED_STATUSES or status >= 500:
        return DeliveryResult(DeliveryOutcome.RETRY, f"answered {status}")
    return DeliveryResult(DeliveryOutcome.REFUSED, f"answered {status}")


def rfc3339(at: float) -> str:
    """Return a time, in seconds since the epoch, in the format of RFC 3339."""
    return datetime.fromtimestamp(at, tz=timezone.utc).isoformat(timespec="milliseconds")
