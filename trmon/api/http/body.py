"""Reads and decompresses request bodies, limited in size before and after decompression."""

from __future__ import annotations

import io
import zlib
from collections.abc import Callable, Mapping
from typing import Protocol

import zstandard
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from trmon.domain.errors import InvalidInput, TooLarge, UnsupportedMedia
from trmon.ingest.body_cost import Body, BodyCost, BodyCosts

MAX_DOCUMENT_BYTES = 1 << 20
"""Maximum size of a body that holds no messages: a policy, a silence, a note."""


class BodyMiddleware:
    """Passes a request to an app with its whole, decompressed body in one message, or refuses it.

    The memory of the bodies of all requests in progress is limited too, so a slow database does not make it grow, and
    shared among callers, so that one caller's stalled uploads do not block the others.
    """

    def __init__(self, *, max_bytes: int, costs: BodyCosts) -> None:
        self._max_bytes = max_bytes
        self._costs = costs

    async def call(
        self, app: ASGIApp, scope: Scope, receive: Receive, send: Send, *, headers: Mapping[str, str], caller: str
    ) -> None:
        """Call the app, unless the client disconnects first. Errors: TooLarge, Overloaded; those of `decompress`."""
        limit = self._max_bytes if scope["path"].endswith("/reports") else min(self._max_bytes, MAX_DOCUMENT_BYTES)
        cost = self._costs.of(caller)
        try:
            body = await _read(headers, receive, max_bytes=limit, cost=cost)
            if body is None:
                return
            encoding = headers.get("content-encoding", "identity").strip().lower()
            if encoding != "identity":
                body = await decompress(body, encoding=encoding, max_bytes=limit, cost=cost)
                scope = _decompressed_scope(scope, len(body))
            scope.setdefault("state", {})["body_cost"] = cost
            await app(scope, _receive_whole(body, receive), send)
        finally:
            cost.end()


async def _read(headers: Mapping[str, str], receive: Receive, *, max_bytes: int, cost: BodyCost) -> Body | None:
    """Return the body, or None if the client disconnected before its end."""
    declared = headers.get("content-length", "0")
    if declared.isdigit() and int(declared) > max_bytes:
        raise _too_large(max_bytes)
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        piece: bytes = message.get("body", b"")
        n_bytes = len(body) + len(piece)
        if n_bytes > max_bytes:
            raise _too_large(max_bytes)
        cost.hold(n_bytes)
        if not body and not message.get("more_body", False):
            return piece
        body += piece
        if not message.get("more_body", False):
            return body


PIECE_BYTES = 1 << 20
"""Most bytes that a thread reads or writes in one turn of decompression: a few milliseconds."""


async def decompress(body: Body, *, encoding: str, max_bytes: int, cost: BodyCost) -> Body:
    """Return a body decompressed, piece by piece: the memory of each is reserved before, and callers take turns.

    Errors: UnsupportedMedia for an encoding other than gzip and zstd, TooLarge above max_bytes, Overloaded,
    InvalidInput if the bytes are not valid in the encoding.
    """
    opener = _OPENERS.get(encoding)
    if opener is None:
        raise UnsupportedMedia(f"content-encoding must be gzip or zstd, not {encoding[:64]!r}")
    stream = opener(body)
    plain = bytearray()
    at_most = min(PIECE_BYTES, 4096 + 16 * len(body))
    while True:
        cost.hold(len(body) + len(plain) + at_most)
        try:
            n_bytes = await cost.run(lambda: stream.read_into(plain, at_most))
        except (EOFError, zlib.error, zstandard.ZstdError) as error:
            raise InvalidInput("body", f"is not valid {encoding}: {error}") from error
        if n_bytes is None:
            cost.hold(len(plain))
            return plain
        cost.count(n_bytes=n_bytes)
        if len(plain) > max_bytes:
            raise _too_large(max_bytes)


class _Stream(Protocol):
    def read_into(self, plain: bytearray, at_most: int, /) -> int | None:
        """Append at most this many decompressed bytes; return how many bytes that took, None at the end."""


class _ZstdStream:
    def __init__(self, body: Body) -> None:
        decompressor = zstandard.ZstdDecompressor(max_window_size=MAX_ZSTD_WINDOW_BYTES)
        self._reader = decompressor.stream_reader(io.BytesIO(body), read_across_frames=True)

    def read_into(self, plain: bytearray, at_most: int) -> int | None:
        piece = self._reader.read(at_most)
        plain += piece
        return len(piece) or None


MAX_ZSTD_WINDOW_BYTES = 8 << 20
MAX_GZIP_MEMBERS = 1000
"""Members may be empty: many of them take time and no space."""
_INPUT_BYTES = 1 << 16


class _GzipStream:
    """Decompresses the members of a gzip file in turns that are bounded in input and in output."""

    def __init__(self, body: Body) -> None:
        self._body = memoryview(body)
        self._at = 0
        self._n_members = 1
        self._member = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)

    def read_into(self, plain: bytearray, at_most: int) -> int | None:
        end, n_read = len(plain) + at_most, 0
        if self._is_at_end():
            return None
        while len(plain) < end and n_read < PIECE_BYTES and not self._is_at_end():
            if self._member.eof:
                self._begin_member()
            given = self._body[self._at : self._at + _INPUT_BYTES]
            piece = self._member.decompress(given, end - len(plain))
            if not piece and not given:
                raise EOFError("it ends before its end mark")
            plain += piece
            n_taken = len(given) - len(self._member.unconsumed_tail) - len(self._member.unused_data)
            self._at += n_taken
            n_read += n_taken + len(piece)
        return n_read

    def _is_at_end(self) -> bool:
        """Return whether the last member has ended, and nothing or padding with zeros follows."""
        return self._member.eof and not any(self._body[self._at : self._at + 1])

    def _begin_member(self) -> None:
        self._n_members += 1
        if self._n_members > MAX_GZIP_MEMBERS:
            raise zlib.error(f"more than {MAX_GZIP_MEMBERS} members; compress the body as one")
        self._member = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)


_OPENERS: dict[str, Callable[[Body], _Stream]] = {"gzip": _GzipStream, "zstd": _ZstdStream}


def _too_large(max_bytes: int) -> TooLarge:
    return TooLarge(
        f"a body may have at most {max_bytes} bytes here, also after decompression; TRMON_MAX_BODY_BYTES raises the "
        "limit of reports"
    )


def _decompressed_scope(scope: Scope, n_bytes: int) -> Scope:
    scope = {**scope, "headers": list(scope["headers"])}
    headers = MutableHeaders(scope=scope)
    del headers["content-encoding"]
    headers["content-length"] = str(n_bytes)
    return scope


def _receive_whole(body: Body, receive: Receive) -> Receive:
    pending: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive_once() -> Message:
        return pending.pop() if pending else await receive()

    return receive_once
