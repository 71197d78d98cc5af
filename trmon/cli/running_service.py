"""What commands that query a running service share."""

from __future__ import annotations

from trmon.cli.command import read_settings
from trmon.domain.model.errors import TrmonError
from trmon.terminal.report_upload import ReportUploader
from trmon_client.api import Service
from trmon_client.config.settings import resolve_service


def service_of(url: str | None) -> Service:
    """Return the client of the service at a URL. Errors: TrmonError, ValidationError."""
    return Service(*_address(url))


def uploader_to(url: str | None) -> ReportUploader:
    """Return what sends messages to the service at a URL. Errors: TrmonError, ValidationError."""
    service_url, token = _address(url)
    return ReportUploader(service_url, token=token)


def _address(url: str | None) -> tuple[str, str | None]:
    """Return the URL of the service and the token, each from the settings if it is not given."""
    settings = read_settings(url=url)
    token = settings.token.get_secret_value() if settings.token else None
    try:
        return resolve_service(url=settings.url, token=token or None, environment={})
    except ValueError as error:
        raise TrmonError(str(error)) from error
