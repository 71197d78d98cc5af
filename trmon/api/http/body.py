"""Reads and decompresses request bodies, limited in size before and after decompression."""

from __future__ import annotations

import asyncio
import gzip
import io
import time
import zlib
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import zstandard
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from trmon.domain.errors import InvalidInput, Overloaded, TooLarge, UnsupportedMedia

MEASURE_SECONDS = 1.0
"""How long released bytes are counted before they become a rate."""
MAX_RETRY_SECONDS = 60.0


class MemoryBudget:
    """Counts the bytes of bodies in memory by caller, and how fast they are released; for the event loop only.

    A caller may hold at most as many bytes as stay free: one caller alone half of the limit, n callers 1/(n + 1) each.
    So no number of callers can use it up, and a caller who comes later always gets a share.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        self._bytes_of: Counter[str] = Counter()
        self._released = 0
        self._measured_since = time.monotonic()
        self._per_second = 0.0

    def reserve(self, n_bytes: int, *, caller: str, already_bytes: int = 0) -> None:
        """Reserve bytes for a request; always possible if no other request has reserved any.

        Args: already_bytes: what the same request has reserved before.
        Errors: Overloaded, with nothing reserved.
        """
        held_bytes = self._bytes_of[caller]
        free_bytes = self._max_bytes - self._bytes
        if self._bytes > already_bytes and held_bytes + n_bytes > free_bytes - n_bytes:
            seconds = self._bytes / self._per_second if self._per_second else 1.0
            raise Overloaded(
                f"{held_bytes} bytes of this caller's requests wait, and {free_bytes} of {self._max_bytes} are free; a "
                "caller may hold as many as stay free; TRMON_MAX_HELD_BYTES raises the limit",
                retry_after_seconds=min(max(seconds, 1.0), MAX_RETRY_SECONDS),
            )
        self._bytes += n_bytes
        self._bytes_of[caller] += n_bytes

    def release(self, n_bytes: int, *, caller: str) -> None:
        """Release a caller's reserved bytes."""
        self._bytes -= n_bytes
        self._bytes_of[caller] -= n_bytes
        if not self._bytes_of[caller]:
            del self._bytes_of[caller]
        self._released += n_bytes
        now = time.monotonic()
        if now - self._measured_since >= MEASURE_SECONDS:
            self._per_second = self._released / (now - self._measured_since)
            self._released, self._measured_since = 0, now


class Reservation:
    """The bytes that one request reserves until it ends."""

    def __init__(self, budget: MemoryBudget, *, caller: str) -> None:
        self._budget = budget
        self._caller = caller
        self._bytes = 0

    def grow(self, n_bytes: int) -> None:
        """Raise the reservation to a total. Errors: Overloaded."""
        if n_bytes > self._bytes:
            self._budget.reserve(n_bytes - self._bytes, caller=self._caller, already_bytes=self._bytes)
            self._bytes = n_bytes

    def end(self) -> None:
        """Release the reservation."""
        self._budget.release(self._bytes, caller=self._caller)
        self._bytes = 0


MAX_ZSTD_WINDOW_BYTES = 8 << 20


class BodyMiddleware:
    """Passes a request to an app with its whole, decompressed body in one message, or refuses it.

    The memory of the bodies of all requests in progress is limited too, so a slow database does not make it grow, and
    shared among callers, so that one caller's stalled uploads do not block the others.
    """

    def __init__(self, *, max_bytes: int, max_held_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._budget = MemoryBudget(max_held_bytes)

    async def call(
        self, app: ASGIApp, scope: Scope, receive: Receive, send: Send, *, headers: Mapping[str, str], caller: str
    ) -> None:
        """Call the app, unless the client disconnects first. Errors: TooLarge, Overloaded; those of `decompress`."""
        reservation = Reservation(self._budget, caller=caller)
        try:
            body = await self._read(headers, receive, reservation=reservation)
            if body is None:
                return
            encoding = headers.get("content-encoding", "identity").strip().lower()
            if encoding != "identity":
                body = await asyncio.to_thread(decompress, body, encoding=encoding, max_bytes=self._max_bytes)
                reservation.grow(len(body))
                scope = _decompressed_scope(scope, len(body))
            await app(scope, _receive_whole(body, receive), send)
        finally:
            reservation.end()

    async def _read(self, headers: Mapping[str, str], receive: Receive, *, reservation: Reservation) -> bytes | None:
        """Return the body, or None if the client disconnected before its end."""
        declared = headers.get("content-length", "0")
        if declared.isdigit() and int(declared) > self._max_bytes:
            raise _too_large(self._max_bytes)
        body = bytearray()
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                return None
            piece: bytes = message.get("body", b"")
            n_bytes = len(body) + len(piece)
            if n_bytes > self._max_bytes:
                raise _too_large(self._max_bytes)
            reservation.grow(n_bytes)
            if message.get("more_body", False):
                body += piece
            else:
                return bytes(body + piece) if body else piece


def decompress(body: bytes, *, encoding: str, max_bytes: int) -> bytes:
    """Return a body decompressed.

    Errors: UnsupportedMedia for an encoding other than gzip and zstd, TooLarge above max_bytes,
    InvalidInput if the bytes are not valid in the encoding.
    """
    opener = _OPENERS.get(encoding)
    if opener is None:
        raise UnsupportedMedia(f"content-encoding must be gzip or zstd, not {encoding[:64]!r}")
    try:
        with opener(body) as stream:
            plain: bytes = stream.read(max_bytes + 1)
    except (OSError, EOFError, zlib.error, zstandard.ZstdError) as error:
        raise InvalidInput("body", f"is not valid {encoding}: {error}") from error
    if len(plain) > max_bytes:
        raise _too_large(max_bytes)
    return plain


_OPENERS: dict[str, Callable[[bytes], Any]] = {
    "gzip": lambda body: gzip.GzipFile(fileobj=io.BytesIO(body)),
    "zstd": lambda body: zstandard.ZstdDecompressor(max_window_size=MAX_ZSTD_WINDOW_BYTES).stream_reader(
        io.BytesIO(body), read_across_frames=True
    ),
}


def _too_large(max_bytes: int) -> TooLarge:
    return TooLarge(
        f"a body may have at most {max_bytes} bytes, also after decompression; TRMON_MAX_BODY_BYTES raises the limit"
    )


def _decompressed_scope(scope: Scope, n_bytes: int) -> Scope:
    scope = {**scope, "headers": list(scope["headers"])}
    headers = MutableHeaders(scope=scope)
    del headers["content-encoding"]
    headers["content-length"] = str(n_bytes)
    return scope


def _receive_whole(body: bytes, receive: Receive) -> Receive:
    pending: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive_once() -> Message:
        return pending.pop() if pending else await receive()

    return receive_once
