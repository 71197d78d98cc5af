"""What commands that query a running service share."""

from __future__ import annotations

from trmon.cli.command import read_settings
from trmon.terminal.api_client import ApiClient
from trmon.terminal.report_upload import ReportUploader


def api_client_of(url: str | None, *, timeout_seconds: float = 60.0) -> ApiClient:
    """Return the client of the service at a URL. Errors: ValidationError."""
    service_url, token = _address(url)
    return ApiClient(url=service_url, token=token, timeout_seconds=timeout_seconds)


def uploader_to(url: str | None) -> ReportUploader:
    """Return what sends messages to the service at a URL. Errors: InvalidInput, ValidationError."""
    service_url, token = _address(url)
    return ReportUploader(service_url, token=token)


def _address(url: str | None) -> tuple[str, str | None]:
    """Return the URL of the service and the token, each from the settings if it is not given."""
    settings = read_settings(url=url)
    return settings.url, settings.token.get_secret_value() if settings.token else None
