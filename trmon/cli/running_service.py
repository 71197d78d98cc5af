"""What commands that query a running service share."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from trmon.config.settings import DEFAULT_SERVICE_URL
from trmon.domain.errors import TrmonError
from trmon_client.api import Service
from trmon_client.config.service_address import resolve_service

if TYPE_CHECKING:
    from trmon.terminal.report_upload import ReportUploader


def service_of(url: str | None) -> Service:
    """Return the client of the service at a URL. Errors: TrmonError."""
    return Service(*_address(url))


def uploader_to(url: str | None) -> ReportUploader:
    """Return what sends messages to the service at a URL. Errors: TrmonError."""
    from trmon.terminal.report_upload import ReportUploader  # with the wire format and numpy

    service_url, token = _address(url)
    return ReportUploader(service_url, token=token)


def _address(url: str | None) -> tuple[str, str | None]:
    """Return the URL of the service and the token, from the environment alone: no other setting has to be valid."""
    environment = {**os.environ, "TRMON_URL": os.environ.get("TRMON_URL") or DEFAULT_SERVICE_URL}
    try:
        return resolve_service(url=url, token=None, environment=environment)
    except ValueError as error:
        raise TrmonError(str(error)) from error
