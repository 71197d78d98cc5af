"""Upload the messages that clients spooled while no service was reachable."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import httpx

from trmon.domain.model.errors import InvalidInput, NotReady
from trmon.terminal.api_client import authorization_header, problem_line
from trmon_client.core import wire
from trmon_client.core.wire.segments import SUFFIX, SegmentError, scan_segment

BUNDLE_MESSAGES = 64
BUNDLE_BYTES = 4 << 20
TIMEOUT_SECONDS = 60.0


def segments_in(directory: Path) -> list[Path]:
    """Return the segment files under a directory, oldest first for each process. Errors: InvalidInput if none."""
    if not directory.is_dir():
        wrong = "is a file; give the folder it lies in" if directory.exists() else "is not there"
        raise InvalidInput("DIR", f"{directory} {wrong}")
    found = sorted(directory.rglob(f"*{SUFFIX}"))
    if not found:
        raise InvalidInput("DIR", f"{directory} contains no segments (*{SUFFIX}); pass the client's spool directory")
    return found


def bundles_in(segment: Path, counts: Counter[str]) -> Iterator[list[bytes]]:
    """Yield the messages of a segment in bundles, and count damaged ones."""
    try:
        found = scan_segment(segment.read_bytes())
    except SegmentError:
        counts["damaged"] += 1
        return
    counts["damaged"] += found.n_damaged + bool(found.torn_bytes)
    bundle: list[bytes] = []
    for message in found.messages:
        if bundle and (len(bundle) == BUNDLE_MESSAGES or sum(map(len, bundle)) + len(message) > BUNDLE_BYTES):
            yield bundle
            bundle = []
        bundle.append(message)
    if bundle:
        yield bundle


class SpoolUploader:
    """Posts bundles to a service; a repeated upload changes nothing, so the files are kept."""

    def __init__(self, url: str, *, token: str | None) -> None:
        headers = {"Content-Type": wire.MSGPACK} | authorization_header(token)
        try:
            self._client = httpx.Client(base_url=url, headers=headers, timeout=TIMEOUT_SECONDS, trust_env=False)
        except httpx.InvalidURL as error:
            raise InvalidInput("--url", f"{url!r} is not a valid URL: {error}") from error

    def send(self, segment: Path) -> Counter[str]:
        """Send one segment and return the counts of its messages by outcome. Errors: NotReady."""
        counts: Counter[str] = Counter()
        for bundle in bundles_in(segment, counts):
            counts.update(ack.status for ack in self._post(bundle).acks)
        return counts

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def _post(self, bundle: list[bytes]) -> wire.Acks:
        try:
            response = self._client.post("/api/v1/reports", content=wire.encode_bundle(bundle))
        except httpx.HTTPError as error:
            raise NotReady(
                f"no service answers at {self._client.base_url}: {error}; start one or give --url"
            ) from error
        if response.status_code != httpx.codes.OK:
            raise NotReady(f"{self._client.base_url} answered {response.status_code}: {problem_line(response)}")
        try:
            return wire.decode_acks(response.content)
        except wire.WireError as error:
            raise NotReady(
                f"{self._client.base_url} does not answer like trmon; pass the URL of a trmon service by --url"
            ) from error
