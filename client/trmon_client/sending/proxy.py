"""The proxy of the environment (HTTP_PROXY, HTTPS_PROXY, ALL_PROXY, NO_PROXY) for the service's URL."""

from __future__ import annotations

from base64 import b64encode
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any
from urllib.parse import SplitResult, unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

from urllib3.connection import HTTPConnection

PYSOCKS_SOCKS5 = 2
"""`socks.SOCKS5` of PySocks, which is an optional package."""

LOOPBACK = ("localhost", "127.0.0.1", "::1")
"""Hosts that no proxy can reach: they are this machine."""

PORTS = {"http": 80, "https": 443, "socks5": 1080, "socks5h": 1080}


@dataclass(frozen=True, slots=True)
class Proxy:
    """Where the proxy listens, and the credentials that it wants."""

    scheme: str
    host: str
    port: int
    user: str | None = None
    password: str = field(default="", repr=False)

    @property
    def is_socks(self) -> bool:
        """Whether it forwards connections, not requests."""
        return self.scheme.startswith("socks")

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

    def socks_connection(
        self, scheme: str, host: str, port: int, *, context: Any, timeout_seconds: float
    ) -> HTTPConnection:
        """Return a connection to the host through this proxy."""
        from urllib3.contrib import socks

        options: Any = {
            "socks_version": PYSOCKS_SOCKS5,
            "proxy_host": self.host,
            "proxy_port": self.port,
            "username": self.user,
            "password": self.password,
            "rdns": self.scheme == "socks5h",
        }
        if scheme == "https":
            return socks.SOCKSHTTPSConnection(options, host, port, timeout=timeout_seconds, ssl_context=context)
        return socks.SOCKSConnection(options, host, port, timeout=timeout_seconds)


def proxy_of(target: SplitResult) -> Proxy | None:
    """Return the proxy that the environment names for a URL, None for a direct connection.

    Errors: ValueError for a proxy that is not a valid URL; ImportError for SOCKS without its package.
    """
    host, proxies = target.hostname or "", getproxies()
    url = proxies.get(target.scheme) or proxies.get("all")
    if not url or host in LOOPBACK or proxy_bypass(host if target.port is None else f"{host}:{target.port}"):
        return None
    parts = urlsplit(url if "://" in url else f"http://{url}")
    if parts.scheme not in PORTS or not parts.hostname:
        raise ValueError(f"a proxy must be a URL with one of the schemes {', '.join(PORTS)}")
    proxy = Proxy(
        parts.scheme,
        parts.hostname,
        parts.port or PORTS[parts.scheme],
        user=None if parts.username is None else unquote(parts.username),
        password=unquote(parts.password or ""),
    )
    if proxy.is_socks:
        import_module("socks")  # PySocks, which urllib3 needs for SOCKS
    return proxy
