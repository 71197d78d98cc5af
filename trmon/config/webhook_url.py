"""The form of a webhook's URL."""

from __future__ import annotations

import httpx


def parse_webhook_url(url: str) -> httpx.URL:
    """Return a URL in its parts. Errors: ValueError, which does not repeat it: it may be a secret."""
    try:
        address = httpx.URL(url)
        address.host.encode("idna")  # as it is looked up
    except (httpx.InvalidURL, UnicodeError):
        address = httpx.URL("")
    if address.scheme not in ("https", "http") or not address.host or not 0 < (address.port or 1) < 1 << 16:
        raise ValueError("must be an address, https://host[:port]/path (or http:// and an allowed host)") from None
    return address
