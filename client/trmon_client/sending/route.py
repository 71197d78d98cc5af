"""The route to the service's URL: direct, or through the proxy of the environment; opens connections along it."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from urllib3.connection import HTTPConnection, HTTPSConnection

from trmon_client.sending.proxy import proxy_of


class ProxyTls(NamedTuple):
    """The TLS settings of a proxy: urllib3's ProxyConfig, which its public modules do not all export."""

    ssl_context: ssl.SSLContext | None
    use_forwarding_for_https: bool = False
    assert_hostname: str | None = None
    assert_fingerprint: str | None = None


class Route:
    """Where connections to one URL lead, and what a request on them says."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._target = urlsplit(url)
        self._host = self._target.hostname or ""
        self._port = self._target.port or (443 if self._target.scheme == "https" else 80)
        self._proxy = proxy_of(self._target)
        is_secure = "https" in (self._target.scheme, self._proxy and self._proxy.scheme)
        self._context = new_tls_context() if is_secure else None
        # A proxy reads requests over HTTP and sends them on; over TLS and SOCKS it only relays bytes.
        is_forwarded = self._proxy is not None and not self._proxy.is_socks and self._target.scheme == "http"
        self.request_target = url if is_forwarded else self._target.path
        self.headers: Mapping[str, str] = self._proxy.headers if self._proxy is not None and is_forwarded else {}

    def new_connection(self, *, timeout_seconds: float) -> HTTPConnection:
        """Return a connection that is not open yet. Args: timeout_seconds: of opening it."""
        proxy, scheme = self._proxy, self._target.scheme
        if proxy is None:
            return self._direct(scheme, self._host, self._port, timeout_seconds)
        if proxy.is_socks:
            return proxy.socks_connection(
                scheme, self._host, self._port, context=self._context, timeout_seconds=timeout_seconds
            )
        if scheme == "http":
            return self._direct(proxy.scheme, proxy.host, proxy.port, timeout_seconds)
        proxy_tls: Any = ProxyTls(self._context)
        connection = HTTPSConnection(
            proxy.host, proxy.port, timeout=timeout_seconds, ssl_context=self._context, proxy_config=proxy_tls
        )
        connection.set_tunnel(self._host, self._port, headers=proxy.headers, scheme=proxy.scheme)
        return connection

    def _direct(self, scheme: str, host: str, port: int, timeout_seconds: float) -> HTTPConnection:
        if scheme == "https":
            return HTTPSConnection(host, port, timeout=timeout_seconds, ssl_context=self._context)
        return HTTPConnection(host, port, timeout=timeout_seconds)


def new_tls_context() -> ssl.SSLContext:
    """Return a context that trusts SSL_CERT_FILE and SSL_CERT_DIR, else the system's certificates, else certifi's."""
    context = ssl.create_default_context()
    paths = ssl.get_default_verify_paths()
    if not (paths.cafile or paths.capath):
        with suppress(ImportError):
            import certifi

            context.load_verify_locations(certifi.where())
    return context
