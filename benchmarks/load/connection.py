"""A keep-alive connection that measures its requests; the same for every measured service.

It uses a bare socket and uvicorn's parser: Python's own client needs as much CPU time per report as the service,
on the same cores.
"""

from __future__ import annotations

import socket
import time
from dataclasses import dataclass
from urllib.parse import urlsplit

from httptools import HttpParserError, HttpResponseParser

TIMEOUT_SECONDS = 60.0
RECEIVE_BYTES = 1 << 16


@dataclass(frozen=True, slots=True)
class Answer:
    """An HTTP response; status 0 means that the connection broke before a response."""

    status: int
    body: bytes
    seconds: float
    retry_after_seconds: float = 0.0


class Connection:
    """Posts to one service; not thread-safe. Reconnects at the next post after an error."""

    def __init__(self, url: str, *, timeout_seconds: float = TIMEOUT_SECONDS) -> None:
        parts = urlsplit(url)
        assert parts.hostname == "127.0.0.1", f"load must stay on this machine, but {url} is remote"
        self._address = (parts.hostname, parts.port or 80)
        self._host = parts.netloc
        self._timeout_seconds = timeout_seconds
        self._socket: socket.socket | None = None

    def post(self, path: str, body: bytes, *, content_type: str, method: str = "POST") -> Answer:
        """Return the response to a body, and its time."""
        return self._ask(method, path, f"Content-Type: {content_type}\r\nContent-Length: {len(body)}\r\n", body)

    def get(self, path: str) -> Answer:
        return self._ask("GET", path, "", b"")

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _ask(self, method: str, path: str, headers: str, body: bytes) -> Answer:
        began = time.perf_counter()
        head = f"{method} {path} HTTP/1.1\r\nHost: {self._host}\r\n{headers}\r\n".encode()
        try:
            incoming = self._exchange(head + body)
        except (HttpParserError, OSError):
            self.close()
            return Answer(0, b"", time.perf_counter() - began)
        if not incoming.keeps_alive:
            self.close()
        return Answer(incoming.status, incoming.body, time.perf_counter() - began, incoming.retry_after_seconds)

    def _exchange(self, request: bytes) -> _Incoming:
        """Send a request and read its response. Errors: OSError, HttpParserError if the connection breaks."""
        if self._socket is None:
            self._socket = socket.create_connection(self._address, self._timeout_seconds)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.sendall(request)
        incoming = _Incoming()
        while not incoming.is_whole:
            data = self._socket.recv(RECEIVE_BYTES)
            if not data:
                raise ConnectionResetError("the connection closed before its response")
            incoming.feed(data)
        return incoming


class _Incoming:
    """A response in progress: the parser calls its methods."""

    def __init__(self) -> None:
        self._parser = HttpResponseParser(self)
        self._pieces: list[bytes] = []
        self.is_whole = False
        self.keeps_alive = False
        """Whether the connection may be reused."""
        self.retry_after_seconds = 0.0

    def feed(self, data: bytes) -> None:
        """Parse received bytes. Errors: HttpParserError."""
        self._parser.feed_data(data)

    @property
    def status(self) -> int:
        return int(self._parser.get_status_code())

    @property
    def body(self) -> bytes:
        return b"".join(self._pieces)

    def on_header(self, name: bytes, value: bytes) -> None:
        if name.lower() == b"retry-after":
            self.retry_after_seconds = float(value)

    def on_headers_complete(self) -> None:
        """Receive the end of the headers, while the parser still has their state."""
        self.keeps_alive = bool(self._parser.should_keep_alive())

    def on_body(self, piece: bytes) -> None:
        self._pieces.append(piece)

    def on_message_complete(self) -> None:
        self.is_whole = True
