"""The webhook: an alert as a signed POST of JSON."""

from __future__ import annotations

import hashlib
import hmac

import httpx
import msgspec

from trmon.domain.alerts import Delivery
from trmon.notify import destination
from trmon.notify.receiver import Outcome, Result

TIMEOUT_SECONDS = 10.0
RETRIED_STATUSES = frozenset({408, 425, 429})
SIGNATURE = "X-Trmon-Signature"
TIMESTAMP = "X-Trmon-Timestamp"
DEDUP_KEY = "X-Trmon-Delivery"


def sign(secret: str, body: bytes, *, timestamp: int) -> str:
    """Return the hex HMAC-SHA256 of '<timestamp>.<body>', as its receiver recomputes it."""
    return hmac.new(secret.encode(), b"%d.%b" % (timestamp, body), hashlib.sha256).hexdigest()


class Webhook:
    """Posts deliveries to one URL; follows no redirect and connects to no address that was not checked."""

    def __init__(
        self,
        url: str,
        *,
        secret: str | None = None,
        allow_hosts: frozenset[str] = frozenset(),
        timeout_seconds: float = TIMEOUT_SECONDS,
        resolve: destination.Resolve = destination.resolve,
    ) -> None:
        self._url = httpx.URL(url)
        self._secret = secret
        self._allow_hosts = allow_hosts
        self._resolve = resolve
        self._client = httpx.Client(timeout=timeout_seconds, follow_redirects=False, trust_env=False)

    def deliver(self, delivery: Delivery, *, now: float) -> Result:
        """Post one delivery. A 2xx delivers; 408, 425, 429, 5xx and network errors are tried again."""
        body = msgspec.json.encode(delivery.body)
        try:
            target = destination.checked(self._url, allow_hosts=self._allow_hosts, resolve=self._resolve)
            with self._client.stream(
                "POST",
                target.url,
                content=body,
                headers={**self._headers(delivery, body, timestamp=int(now)), "Host": target.host_header},
                extensions={"sni_hostname": target.server_name},
            ) as response:
                return _result(response.status_code)
        except destination.Forbidden as error:
            return Result(Outcome.REFUSED, str(error))
        except (httpx.HTTPError, OSError) as error:
            return Result(Outcome.RETRY, type(error).__name__)

    def close(self) -> None:
        """Let go of connections."""
        self._client.close()

    def _headers(self, delivery: Delivery, body: bytes, *, timestamp: int) -> dict[str, str]:
        headers = {"Content-Type": "application/json", DEDUP_KEY: delivery.dedup_key, TIMESTAMP: str(timestamp)}
        if self._secret is not None:
            headers[SIGNATURE] = f"sha256={sign(self._secret, body, timestamp=timestamp)}"
        return headers


def _result(status: int) -> Result:
    if 200 <= status < 300:
        return Result(Outcome.DELIVERED)
    if status in RETRIED_STATUSES or status >= 500:
        return Result(Outcome.RETRY, f"answered {status}")
    return Result(Outcome.REFUSED, f"answered {status}")
