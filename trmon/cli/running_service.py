"""What commands that query a running service share."""

from __future__ import annotations

from trmon.cli.command import read_settings
from trmon.terminal.api_client import ApiClient


def api_client_of(url: str | None, *, timeout_seconds: float = 60.0) -> ApiClient:
    """Return the client of the service at a URL. Errors: ValidationError."""
    settings = read_settings(url=url)
    token = settings.token.get_secret_value() if settings.token else None
    return ApiClient(url=settings.url, token=token, timeout_seconds=timeout_seconds)
