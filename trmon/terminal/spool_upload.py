"""Spooled messages: what clients wrote down while no service could be reached, sent to one."""

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
    """Return the segment files under a directory, each process' oldest first. Errors: InvalidInput without any."""
    if not directory.is_dir():
        wrong = "is a file; give the folder it lies in" if directory.exists() else "is not there"
        raise InvalidInput("DIR", f"{directory} {wrong}")
    found = sorted(directory.rglob(f"*{SUFFIX}"))
    if not found:
        raise InvalidInput("DIR", f"{directory} holds no segments (*{SUFFIX}); it is the client's spool directory")
    return found


def bundles_in(segment: Path, counts: Counter[str]) -> Iterator[list[bytes]]:
    """Yield the messages of a segment in bundles, counting what is damaged."""
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
    """Posts bundles to a service; sending one again changes nothing, so files are left as they are."""

    def __init__(self, url: str, *, token: str | None) -> None:
        headers = {"Content-Type": wire.MSGPACK} | authorization_header(token)
        try:
            self._client = httpx.Client(base_url=url, headers=headers, timeout=TIMEOUT_SECONDS, trust_env=False)
        except httpx.InvalidURL as error:
            raise InvalidInput("--url", f"{url!r} is no address: {error}") from error

    def send(self, segment: Path) -> Counter[str]:
        """Send one segment; return how many of its messages became what. Errors: NotReady."""
        counts: Counter[str] = Counter()
        for bundle in bundles_in(segment, counts):
            counts.update(ack.status for ack in self._post(bundle).acks)
        return counts

    def close(self) -> None:
        """Let go of connections."""
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
            raise NotReady(f"{self._client.base_url} answers, but not as trmon does; --url is its address") from error
