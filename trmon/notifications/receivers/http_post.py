"""The other side of a receiver: one POST of JSON to a checked address, and what its answer means."""

from __future__ import annotations

from collections.abc import Mapping

import httpx

from trmon.config import webhook_url
from trmon.notifications.receivers import destination_check
from trmon.notifications.receivers.receiver import Outcome, Result

TIMEOUT_SECONDS = 10.0
RETRIED_STATUSES = frozenset({408, 425, 429})


class Peer:
    """Posts to one URL; follows no redirect and connects to no address that was not checked."""

    def __init__(
        self,
        url: str,
        *,
        allow_hosts: frozenset[str] = frozenset(),
        timeout_seconds: float = TIMEOUT_SECONDS,
        resolve: destination_check.Resolve = destination_check.resolve,
    ) -> None:
        self._url = webhook_url.address_of(url)
        self._allow_hosts = allow_hosts
        self._resolve = resolve
        self._client = httpx.Client(timeout=timeout_seconds, follow_redirects=False, trust_env=False)

    def post(self, body: bytes, *, headers: Mapping[str, str] | None = None) -> Result:
        """Post JSON. A 2xx delivers; 408, 425, 429, 5xx and network errors may be tried again."""
        try:
            target = destination_check.checked(self._url, allow_hosts=self._allow_hosts, resolve=self._resolve)
            with self._client.stream(
                "POST",
                target.url,
                content=body,
                headers={**(headers or {}), "Content-Type": "application/json", "Host": target.host_header},
                extensions={"sni_hostname": target.server_name},
            ) as response:
                return _result(response.status_code)
        except destination_check.Forbidden as error:
            return Result(Outcome.REFUSED, str(error))
        except (httpx.HTTPError, OSError) as error:
            return Result(Outcome.RETRY, type(error).__name__)

    def close(self) -> None:
        """Let go of connections."""
        self._client.close()


def _result(status: int) -> Result:
    if 200 <= status < 300:
        return Result(Outcome.DELIVERED)
    if status in RETRIED_STATUSES or status >= 500:
        return Result(Outcome.RETRY, f"answered {status}")
    return Result(Outcome.REFUSED, f"answered {status}")
