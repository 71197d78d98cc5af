"""Upload messages to a running service in bundles; what it refuses for the moment is sent again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from trmon_client.api import IncompatibleService
from trmon_client.core import wire

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
