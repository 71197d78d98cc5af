"""Upload messages to a running service in bundles; what it refuses for the moment is sent again."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator

import httpx

from trmon.domain.model.errors import InvalidInput, NotReady
from trmon.terminal.api_client import authorization_header, problem_line
from trmon_client.core import wire

BUNDLE_MESSAGES = 64
BUNDLE_BYTES = 4 << 20
TIMEOUT_SECONDS = 60.0
MAX_TRIES = 10
MAX_WAIT_SECONDS = 30.0


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
        headers = {"Content-Type": wire.MSGPACK} | authorization_header(token)
        try:
            self._client = httpx.Client(base_url=url, headers=headers, timeout=TIMEOUT_SECONDS, trust_env=False)
        except httpx.InvalidURL as error:
            raise InvalidInput("--url", f"{url!r} is not a valid URL: {error}") from error

    def post(self, bundle: list[bytes]) -> wire.Acks:
        """Return the answers to a bundle, after waiting as long as the service asks for. Errors: NotReady."""
        response = self._answer(bundle)
        for _ in range(MAX_TRIES - 1):
            wait_seconds = response.headers.get("retry-after", "")
            if not wait_seconds.isdigit():
                break
            time.sleep(min(float(wait_seconds), MAX_WAIT_SECONDS))
            response = self._answer(bundle)
        if response.status_code != httpx.codes.OK:
            raise NotReady(f"{self._client.base_url} answered {response.status_code}: {problem_line(response)}")
        try:
            return wire.decode_acks(response.content)
        except wire.WireError as error:
            raise NotReady(
                f"{self._client.base_url} does not answer like trmon; pass the URL of a trmon service by --url"
            ) from error

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def _answer(self, bundle: list[bytes]) -> httpx.Response:
        try:
            return self._client.post("/api/v1/reports", content=wire.encode_bundle(bundle))
        except httpx.HTTPError as error:
            raise NotReady(
                f"no service answers at {self._client.base_url}: {error}; start one or give --url"
            ) from error
