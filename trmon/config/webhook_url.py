"""Validates webhook URLs."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import httpx


def parse_webhook_url(url: str) -> httpx.URL:
    """Return a parsed URL. Errors: ValueError, which omits the URL because it may be a secret."""
    import httpx  # every command reads the settings, and few have a webhook

    try:
        address = httpx.URL(url)
        address.host.encode("idna")  # the encoding of the DNS look-up
    except (httpx.InvalidURL, UnicodeError):
        address = httpx.URL("")
    if address.scheme not in ("https", "http") or not address.host or not 0 < (address.port or 1) < 1 << 16:
        raise ValueError("must be a URL, https://host[:port]/path (or http:// with an allowed host)") from None
    return address
