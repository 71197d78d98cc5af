"""A server on the loopback that mistreats each connection in one way."""

from __future__ import annotations

import socket
import socketserver
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from itertools import cycle

from tests.client.server import LoopbackServer

Behaviour = Callable[[socket.socket, threading.Event], None]
"""Gets each accepted connection, and the event that the server ends."""

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/msgpack\r\nContent-Length: 1000000\r\n\r\n"


def never_answer(connection: socket.socket, ends: threading.Event) -> None:
    """Read the request and keep the connection open."""
    _read_request(connection)
    ends.wait()


def never_read(_connection: socket.socket, ends: threading.Event) -> None:
    """Accept the connection and do nothing."""
    ends.wait()


def hang_up(_connection: socket.socket, _ends: threading.Event) -> None:
    """Close the connection at once."""


def drip(parts: Iterable[bytes], *, seconds: float = 1.0) -> Behaviour:
    """Return the behaviour that answers part by part, with a pause after each."""

    def behave(connection: socket.socket, ends: threading.Event) -> None:
        _read_request(connection)
        for part in parts:
            connection.sendall(part)
            if ends.wait(seconds):
                return

    return behave


def one_byte_a_second() -> Behaviour:
    """Return the behaviour that answers one byte a second."""
    return drip(bytes([byte]) for byte in cycle(HEAD))


def answer(data: bytes) -> Behaviour:
    """Return the behaviour that answers with these bytes and closes the connection."""

    def behave(connection: socket.socket, _ends: threading.Event) -> None:
        _read_request(connection)
        connection.sendall(data)

    return behave


def status(line: str, *headers: str, body: bytes = b"") -> Behaviour:
    """Return the behaviour that answers with a status line, headers and a body."""
    head = "\r\n".join([f"HTTP/1.1 {line}", f"Content-Length: {len(body)}", "Connection: close", *headers, "", ""])
    return answer(head.encode() + body)


class HostileServer(LoopbackServer):
    """Listens on a port, by default a free one, treats every connection as `behave` says, and counts them."""

    def __init__(self, behave: Behaviour, *, port: int = 0) -> None:
        server = self
        self.n_connections = self.n_closed = 0

        class Handler(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                server.n_connections += 1
                self.request.settimeout(60.0)
                with suppress(OSError), self.request:
                    behave(self.request, server._ends)
                server.n_closed += 1

        super().__init__(Handler, port=port)


def _read_request(connection: socket.socket) -> None:
    reader = connection.makefile("rb")
    length = 0
    while line := reader.readline().strip():
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            length = int(value)
    reader.read(length)
