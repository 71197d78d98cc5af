"""The route to the service's URL: direct, or through the proxy of the environment; opens connections along it."""

from __future__ import annotations

import ssl
from base64 import b64encode
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from urllib.parse import SplitResult, unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

from urllib3.connection import HTTPConnection, HTTPSConnection

LOOPBACK = ("localhost", "127.0.0.1", "::1")
"""Hosts that no proxy can reach: they are this machine."""

PORTS = {"http": 80, "https": 443}


def tls_advice(error: BaseException) -> str:
    """Return what to correct where a service without TLS was asked by https, else nothing."""
    return "; the service speaks http: correct the URL's https" if "WRONG_VERSION_NUMBER" in str(error) else ""


@dataclass(frozen=True, slots=True)
class Proxy:
    """Where the proxy listens, and the credentials that it wants."""

    scheme: str
    host: str
    port: int
    user: str | None = None
    password: str = field(default="", repr=False)

    @property
    def url(self) -> str:
        """Its URL, without the credentials."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"

    @property
    def headers(self) -> dict[str, str]:
        """The header with the credentials, or none."""
        if self.user is None:
            return {}
        credentials = b64encode(f"{self.user}:{self.password}".encode()).decode()
        return {"Proxy-Authorization": f"Basic {credentials}"}


def proxy_of(target: SplitResult) -> Proxy | None:
    """Return the proxy that the environment names for a URL, None for a direct connection.

    Errors: ValueError for a proxy that is not a valid URL.
    """
    host, proxies = target.hostname or "", getproxies()
    url = proxies.get(target.scheme) or proxies.get("all")
    if not url or host in LOOPBACK or proxy_bypass(host if target.port is None else f"{host}:{target.port}"):
        return None
    parts = urlsplit(url if "://" in url else f"http://{url}")
    if parts.scheme not in PORTS or not parts.hostname:
        raise ValueError(f"a proxy must be a URL with one of the schemes {', '.join(PORTS)}")
    return Proxy(
        parts.scheme,
        parts.hostname,
        parts.port or PORTS[parts.scheme],
        user=None if parts.username is None else unquote(parts.username),
        password=unquote(parts.password or ""),
    )


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
        # A proxy reads requests over HTTP and sends them on; over TLS it only relays bytes.
        is_forwarded = self._proxy is not None and self._target.scheme == "http"
        self.request_target = url if is_forwarded else self._target.path
        self.headers: Mapping[str, str] = self._proxy.headers if self._proxy is not None and is_forwarded else {}

    def new_connection(self, *, timeout_seconds: float) -> HTTPConnection:
        """Return a connection that is not open yet. Args: timeout_seconds: of opening it."""
        proxy, scheme = self._proxy, self._target.scheme
        if proxy is None:
            return self._direct(scheme, self._host, self._port, timeout_seconds)
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
