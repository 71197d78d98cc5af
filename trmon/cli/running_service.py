"""What commands that query a running service share."""

from __future__ import annotations

from trmon.cli.command import read_settings
from trmon.terminal.api_client import ApiClient
from trmon.terminal.report_upload import ReportUploader


def api_client_of(url: str | None, *, timeout_seconds: float = 60.0) -> ApiClient:
    """Return the client of the service at a URL. Errors: ValidationError."""
    settings = read_settings(url=url)
    token = settings.token.get_secret_value() if settings.token else None
    return ApiClient(url=settings.url, token=token, timeout_seconds=timeout_seconds)


def uploader_to(url: str | None) -> ReportUploader:
    """Return what sends messages to the service at a URL. Errors: InvalidInput, ValidationError."""
    settings = read_settings(url=url)
    return ReportUploader(settings.url, token=settings.token.get_secret_value() if settings.token else None)
