"""Common parts of commands that query a running service."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from trmon.domain.errors import TrmonError
from trmon_client.api import IncompatibleService, Service
from trmon_client.config.service_address import resolve_service

if TYPE_CHECKING:
    from trmon_client.core import wire

DEFAULT_SERVICE_URL = "http://127.0.0.1:8642"
"""Also the default of the setting `url`, whose module is slow to import."""


def service_of(url: str | None) -> Service:
    """Return the client of the service at a URL. Errors: TrmonError."""
    return Service(*_address(url))


def uploader_to(url: str | None) -> ReportUploader:
    """Return what sends messages to the service at a URL. Errors: TrmonError."""
    service_url, token = _address(url)
    return ReportUploader(service_url, token=token)


def _address(url: str | None) -> tuple[str, str | None]:
    """Return the URL of the service and the token, from the environment alone: no other setting has to be valid."""
    environment = {**os.environ, "TRMON_URL": os.environ.get("TRMON_URL") or DEFAULT_SERVICE_URL}
    try:
        return resolve_service(url=url, token=None, environment=environment)
    except ValueError as error:
        raise TrmonError(str(error)) from error


BUNDLE_MESSAGES = 64
BUNDLE_BYTES = 4 << 20
TIMEOUT_SECONDS = 60.0
MAX_TRIES = 10


def bundled(messages: Iterable[bytes]) -> Iterator[list[bytes]]:
    """Yield messages in bundles of a size that a service accepts."""
    bundle: list[bytes] = []
    for message in messages:
        if bundle and (len(bundle) == BUNDLE_MESSAGES or sum(map(len, bundle)) + len(message) > BUNDLE_BYTES):
            yield bundle
            bundle = []
        bundle.append(message)
    if bundle:
        yield bundle


class ReportUploader:
    """Posts bundles of encoded messages; a repeated upload changes nothing."""

    def __init__(self, url: str, *, token: str | None) -> None:
        from trmon_client.api.http_client import HttpClient  # with urllib3, which `trmon ingest --help` need not load

        self._http = HttpClient(url, token=token, timeout_seconds=TIMEOUT_SECONDS)

    def post(self, bundle: list[bytes]) -> wire.Acks:
        """Return the answers to a bundle, after waiting as long as the service asks for. Errors: ServiceError."""
        from trmon_client.core import wire  # with numpy

        body = wire.encode_bundle(bundle)
        answer = self._http.request("POST", "/api/v1/reports", body=body, media_type=wire.MSGPACK, max_tries=MAX_TRIES)
        try:
            return wire.decode_acks(answer)
        except wire.WireError as error:
            raise IncompatibleService(
                f"{self._http.url} does not answer like trmon; give the URL of a trmon service"
            ) from error

    def close(self) -> None:
        """Close the connections."""
        self._http.close()
