"""Proxies on the loopback that relay every request to one server and record what they were asked for."""

from __future__ import annotations

import socket
import socketserver
import threading
from contextlib import suppress

from tests.client.server import LoopbackServer


class ProxyServer(LoopbackServer):
    """Relays to a port of the loopback, whatever host the client names; speaks TLS to the client if it is secure."""

    def __init__(self, upstream_port: int, *, is_secure: bool = False) -> None:
        super().__init__(_handler(self), is_secure=is_secure)
        self.heads: list[bytes] = []
        """The first line and the headers of each request that the proxy itself read."""
        self.upstream_port = upstream_port

    @property
    def address(self) -> str:
        """Host and port."""
        return f"127.0.0.1:{self.port}"

    def serve(self, client: socket.socket) -> None:
        """Read the head of a request and relay the rest, after CONNECT both ways without reading."""
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            head += client.recv(1)
        self.heads.append(head)
        with socket.create_connection(("127.0.0.1", self.upstream_port)) as upstream:
            if head.startswith(b"CONNECT"):
                client.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
            else:
                upstream.sendall(head)
            _relay_both_ways(client, upstream)


def _relay_both_ways(client: socket.socket, upstream: socket.socket) -> None:
    back = threading.Thread(target=_relay, args=(upstream, client), daemon=True)
    back.start()
    _relay(client, upstream)
    back.join()


def _relay(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(1 << 16):
            target.sendall(data)
    with suppress(OSError):
        target.shutdown(socket.SHUT_WR)


def _handler(proxy: ProxyServer) -> type[socketserver.BaseRequestHandler]:
    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            proxy.serve(self.request)

    return Handler
