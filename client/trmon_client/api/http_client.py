"""Sends requests to a service over urllib3, and turns failures into errors that say what to do."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode, urlsplit

import msgspec
from urllib3 import BaseHTTPResponse, PoolManager, ProxyManager, Retry, Timeout
from urllib3.exceptions import HTTPError

from trmon_client.api import errors
from trmon_client.config.version import __version__
from trmon_client.sending.route import new_tls_context, proxy_of, tls_advice

CONNECT_SECONDS = 10.0
MAX_WAIT_SECONDS = 30.0
MAX_TRIES = 3
BUSY = (429, 503)
NO_ROUTE = "no route "
"""How a service's answer to a path that it does not have begins."""
JSON = "application/json"


class HttpClient:
    """Sends requests to one service; threads may share it."""

    def __init__(self, url: str, *, token: str | None, timeout_seconds: float) -> None:
        self.url = url
        self._pool = _pool_to(url)
        self._timeout_seconds = timeout_seconds
        self._headers = {"User-Agent": f"trmon-client/{__version__}"}
        if token:
            self._headers["Authorization"] = f"Bearer {token}"

    def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, Any] | None = None,
        body: bytes | None = None,
        media_type: str = JSON,
        timeout_seconds: float | None = None,
        max_tries: int = MAX_TRIES,
    ) -> bytes:
        """Return the answer to a request; one that the service is too busy for is sent again when it asks for that.

        Args: query: None leaves a parameter out. Errors: ServiceError.
        """
        headers = self._headers | ({} if body is None else {"Content-Type": media_type})
        known = {name: value for name, value in (query or {}).items() if value is not None}
        given = urlencode({name: "true" if value is True else value for name, value in known.items()})
        target = f"{self.url}{path}?{given}" if given else f"{self.url}{path}"
        timeout = Timeout(connect=CONNECT_SECONDS, read=timeout_seconds or self._timeout_seconds)
        for _ in range(max_tries - 1):
            try:
                return self._send(method, target, body=body, headers=headers, timeout=timeout)
            except errors.ServiceBusy as error:
                time.sleep(min(error.retry_after_seconds, MAX_WAIT_SECONDS))
        return self._send(method, target, body=body, headers=headers, timeout=timeout)

    def close(self) -> None:
        """Close the connections."""
        self._pool.clear()

    def _send(self, method: str, target: str, **options: Any) -> bytes:
        # A kept connection may have been closed meanwhile: what changes nothing is sent again.
        retries = Retry(total=1, connect=0, read=1, status=0, other=0, allowed_methods={"GET"})
        try:
            answer = self._pool.request(method, target, retries=retries, redirect=False, **options)
        except HTTPError as error:
            raise errors.ServiceUnreachable(
                f"no service answers at {self.url}: {_reason(error)}"
                f"{tls_advice(error) or '; start one (`trmon serve`) or correct the URL'}"
            ) from error
        if 200 <= answer.status < 300:
            return bytes(answer.data)
        raise self._refusal(answer)

    def _refusal(self, answer: BaseHTTPResponse) -> errors.ServiceError:
        status, said = answer.status, f"{self.url} answered {answer.status}"
        detail, retry_after = _problem(answer), answer.headers.get("Retry-After", "")
        if status in BUSY and retry_after.isdigit():
            seconds = float(retry_after)
            return errors.ServiceBusy(f"{said}: {detail or answer.reason}", status=status, retry_after_seconds=seconds)
        if detail is None and status >= 500:
            return errors.ServiceUnreachable(
                f"{said}: {answer.reason}; the proxy in front of the service does not reach it", status=status
            )
        if detail is None:
            return errors.IncompatibleService(
                f"{said}: {answer.reason}, with a page that is not from trmon; give the URL of a trmon service",
                status=status,
            )
        if status == 401:
            return errors.AccessDenied(f"{said}: {detail}; pass the token or set TRMON_TOKEN", status=status)
        if status == 403:
            return errors.AccessDenied(f"{said}: {detail}", status=status)
        if status in (404, 405) and (status == 405 or detail.startswith(NO_ROUTE)):
            advice = f"correct the URL, or update the older of the service and this client ({__version__})"
            return errors.IncompatibleService(f"{said}: {detail}; {advice}", status=status)
        if status == 404:
            return errors.NotFoundError(f"{said}: {detail}", status=status)
        return errors.RequestRefused(f"{said}: {detail}", status=status)


def _pool_to(url: str) -> PoolManager:
    """Return the pool of connections to a URL, along the same proxies and with the same certificates as reports."""
    target = urlsplit(url)
    proxy = proxy_of(target)
    is_secure = "https" in (target.scheme, proxy and proxy.scheme)
    context = new_tls_context() if is_secure else None
    if proxy is None:
        return PoolManager(ssl_context=context)
    return ProxyManager(proxy.url, proxy_headers=proxy.headers, ssl_context=context, proxy_ssl_context=context)


def _problem(answer: BaseHTTPResponse) -> str | None:
    """Return the detail of trmon's problem details; None for an answer of something else."""
    if not answer.headers.get("Content-Type", "").startswith("application/problem+json"):
        return None
    try:
        return str(msgspec.json.decode(answer.data, type=dict[str, Any])["detail"])
    except (msgspec.MsgspecError, ValueError, KeyError):
        return None


def _reason(error: BaseException) -> str:
    """Return the innermost cause: urllib3's own texts name its classes and pools."""
    inner = getattr(error, "reason", None) or error.__cause__ or error.__context__
    return _reason(inner) if isinstance(inner, BaseException) else str(error) or type(error).__name__
