"""Browser security: response headers, the Host allow-list, and refusal of cross-site writes."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlsplit

from trmon.domain.errors import Forbidden

HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Content-Security-Policy": "default-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
}
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
SAME_SITES = frozenset({"same-origin", "none"})


def check_host(headers: Mapping[str, str], *, hosts: frozenset[str] | None) -> None:
    """Refuse an unknown Host header, so that a foreign name that resolves to this service is not answered.

    Args: hosts: names in lower case, or None, which accepts any.
    Errors: Forbidden.
    """
    if hosts is None:
        return
    host = _without_port(headers.get("host", "").lower())
    if host not in hosts:
        raise Forbidden(f"the host {host[:64]!r} is not answered here; TRMON_ALLOW_HOSTS adds it")


def check_site(headers: Mapping[str, str], *, method: str) -> None:
    """Refuse writes that another site's page sends through a browser. Errors: Forbidden."""
    if method not in SAFE_METHODS and _is_cross_site(headers):
        raise Forbidden("a page of another site may not write here")


def _is_cross_site(headers: Mapping[str, str]) -> bool:
    site = headers.get("sec-fetch-site")
    if site is not None and site not in SAME_SITES:
        return True
    origin = headers.get("origin")
    return origin is not None and _host_of(origin).lower() != headers.get("host", "").lower()


def _host_of(origin: str) -> str:
    """Return the host and port of an origin; the origin itself if it is not a valid URL, which matches no host."""
    try:
        return urlsplit(origin).netloc
    except ValueError:
        return origin


def _without_port(host: str) -> str:
    name, colon, port = host.rpartition(":")
    return name if colon and port.isdigit() else host
