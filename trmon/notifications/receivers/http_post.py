"""HTTP client of the receivers: posts JSON to a checked address and classifies the response."""

from __future__ import annotations

from collections.abc import Mapping

import httpx

from trmon.config import webhook_url
from trmon.notifications.receivers import destination_check
from trmon.notifications.receivers.receiver import DeliveryOutcome, DeliveryResult

TIMEOUT_SECONDS = 10.0
RETRIED_STATUSES = frozenset({408, 425, 429})


class HttpPost:
    """Posts to one URL; follows no redirects and connects only to addresses that were checked, in turn."""

    def __init__(
        self,
        url: str,
        *,
        allow_hosts: frozenset[str] = frozenset(),
        timeout_seconds: float = TIMEOUT_SECONDS,
        resolve: destination_check.Resolve = destination_check.resolve_host,
    ) -> None:
        self._url = webhook_url.parse_webhook_url(url)
        self._allow_hosts = allow_hosts
        self._resolve = resolve
        self._timeout_seconds = timeout_seconds
        self._client = httpx.Client(timeout=timeout_seconds, follow_redirects=False, trust_env=False)

    def post(self, body: bytes, *, headers: Mapping[str, str] | None = None) -> DeliveryResult:
        """Post JSON. A 2xx is delivered; 408, 425, 429, 5xx and network errors may be retried."""
        try:
            destination = destination_check.check_destination(
                self._url, allow_hosts=self._allow_hosts, resolve=self._resolve
            )
            return self._post_to(destination, body, headers={**(headers or {}), "Content-Type": "application/json"})
        except destination_check.DestinationForbidden as error:
            return DeliveryResult(DeliveryOutcome.REFUSED, str(error))
        except (httpx.HTTPError, OSError) as error:
            return DeliveryResult(DeliveryOutcome.RETRY, type(error).__name__)

    def _post_to(
        self, destination: destination_check.Destination, body: bytes, *, headers: Mapping[str, str]
    ) -> DeliveryResult:
        """Post to the first address that accepts a connection; all share the time for connecting."""
        timeout = httpx.Timeout(self._timeout_seconds, connect=self._timeout_seconds / len(destination.urls))
        failure: httpx.HTTPError | None = None
        for url in destination.urls:
            try:
                with self._client.stream(
                    "POST",
                    url,
                    content=body,
                    headers={**headers, "Host": destination.host_header},
                    extensions={"sni_hostname": destination.server_name},
                    timeout=timeout,
                ) as response:
                    return result_of_status(response.status_code)
            except (httpx.ConnectError, httpx.ConnectTimeout) as error:
                failure = error
        raise failure or OSError("the host has no address")

    def close(self) -> None:
        """Close the connections."""
        self._client.close()


def result_of_status(status: int) -> DeliveryResult:
    """Return the result that an HTTP status means."""
    if 200 <= status < 300:
        return DeliveryResult(DeliveryOutcome.DELIVERED)
    if status in RETRIED_STATUSES or status >= 500:
        return DeliveryResult(DeliveryOutcome.RETRY, f"answered {status}")
    return DeliveryResult(DeliveryOutcome.REFUSED, f"answered {status}")
