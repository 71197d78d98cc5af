"""Servers on the loopback: of the wire format, scripted by a test to answer, refuse or hang; and proxies to them."""

from __future__ import annotations

import json
import os
import socket
import socketserver
import ssl
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, TypeVar

import pytest

from trmon_client.core import wire
from trmon_client.process import exit_hooks

PATIENCE_SECONDS = 60.0
"""How long a test waits for an expected event; no result depends on it."""


@dataclass(frozen=True)
class Answer:
    """What to do with one request."""

    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes | None = None
    hangs: bool = False
    hangs_up: bool = False


def problem(status: int, detail: str, **headers: str) -> Answer:
    """Return a refusal with problem details, as the service sends it."""
    body = json.dumps({"title": "refused", "detail": detail}).encode()
    return Answer(status, {"Content-Type": "application/problem+json", **headers}, body)


CERTIFICATE = Path(__file__).parent / "tls.pem"
"""A certificate for 127.0.0.1, localhost, service.test and proxy.test, self-signed, with its key."""


def tls_context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(CERTIFICATE)
    return context


ACCEPT = Answer()
HANG = Answer(hangs=True)
HANG_UP = Answer(hangs_up=True)


@dataclass(frozen=True)
class Request:
    path: str
    headers: dict[str, str]
    messages: list[Any]
    port: int
    """The client's port, which identifies the connection."""


class _Listener(socketserver.ThreadingTCPServer):
    allow_reuse_address = daemon_threads = True


AnyServer = TypeVar("AnyServer", bound="LoopbackServer")


class LoopbackServer:
    """Serves each connection to a port of the loopback in its own thread while it is entered."""

    def __init__(self, handler: Callable[..., Any], *, port: int = 0, is_secure: bool = False) -> None:
        self._ends = threading.Event()
        self._server = _Listener(("127.0.0.1", port), handler)
        self._scheme = "https" if is_secure else "http"
        if is_secure:
            self._server.socket = tls_context().wrap_socket(self._server.socket, server_side=True)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02})

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    @property
    def url(self) -> str:
        return f"{self._scheme}://127.0.0.1:{self.port}"

    def __enter__(self: AnyServer) -> AnyServer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def stored(_message: Any) -> wire.Ack:
    return wire.Ack("stored")


class Peer(LoopbackServer):
    """A server on a free port of the loopback; `script` answers the next requests, `otherwise` the rest."""

    def __init__(
        self,
        script: Iterable[Answer] = (),
        *,
        otherwise: Answer = ACCEPT,
        acknowledge: Callable[[Any], wire.Ack] = stored,
        port: int = 0,
        is_secure: bool = False,
    ) -> None:
        super().__init__(_handler(self), port=port, is_secure=is_secure)
        self.script = deque(script)
        self.otherwise = otherwise
        self.acknowledge = acknowledge
        self.requests: list[Request] = []
        self.messages: list[Any] = []
        self._changed = threading.Condition()

    def wait_until(self, happened: Callable[[Peer], bool]) -> None:
        """Wait until the condition holds; fail if it does not in time."""
        with self._changed:
            assert self._changed.wait_for(lambda: happened(self), PATIENCE_SECONDS), [
                (type(message).__name__, getattr(message, "step", None)) for message in self.messages
            ]

    def wait_for(self, kind: type, *, n: int = 1) -> list[Any]:
        """Wait until n messages of a kind have been acknowledged, and return all of them."""
        self.wait_until(lambda peer: len(peer.of(kind)) >= n)
        return self.of(kind)

    def of(self, kind: type) -> list[Any]:
        """Return the acknowledged messages of a kind."""
        return [message for message in self.messages if isinstance(message, kind)]

    @property
    def steps(self) -> list[int]:
        """The steps of the acknowledged reports, in the order of arrival."""
        return [message.step for message in self.of(wire.Report)]

    def answer(self, request: Request) -> Answer:
        """Record a request and return the answer to it."""
        with self._changed:
            self.requests.append(request)
            answer = self.script.popleft() if self.script else self.otherwise
            if answer.status == 200 and answer.body is None and not (answer.hangs or answer.hangs_up):
                self.messages += request.messages
                acks = wire.Acks([self.acknowledge(message) for message in request.messages])
                answer = Answer(200, {"Content-Type": wire.MSGPACK}, wire.encode(acks))
            self._changed.notify_all()
        if answer.hangs:
            self._ends.wait()
        return answer


def _handler(peer: Peer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            messages = wire.decode_bundle(body) if body else []
            answer = peer.answer(Request(self.path, dict(self.headers), messages, self.client_address[1]))
            if answer.hangs or answer.hangs_up:
                self.close_connection = True
                return
            body = answer.body or b""
            with suppress(BrokenPipeError, ConnectionResetError):
                self.send_response_only(answer.status)
                for name, value in {"Content-Length": str(len(body)), **answer.headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

        do_GET = do_POST

        def log_message(self, format: str, *args: Any) -> None:
            """Log nothing."""

    return Handler


class ProxyServer(LoopbackServer):
    """Relays to a port of the loopback, whatever host the client names; speaks TLS to the client if it is secure."""

    def __init__(self, upstream_port: int, *, is_secure: bool = False) -> None:
        super().__init__(_proxy_handler(self), is_secure=is_secure)
        self.heads: list[bytes] = []
        """The first line and the headers of each request that the proxy itself read."""
        self.upstream_port = upstream_port

    @property
    def address(self) -> str:
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


def _proxy_handler(proxy: ProxyServer) -> type[socketserver.BaseRequestHandler]:
    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            proxy.serve(self.request)

    return Handler


@contextmanager
def run_server(spool: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Peer]:
    """Set the TRMON_ variables of the next run; at the end, finish all runs as the end of the process does."""
    for name in [name for name in os.environ if name.startswith("TRMON_")]:
        monkeypatch.delenv(name)
    with Peer() as peer:
        for name, value in {"URL": peer.url, "PROJECT": "math", "RUN": "tiny", "SPOOL_DIR": str(spool)}.items():
            monkeypatch.setenv(f"TRMON_{name}", value)
        yield peer
        exit_hooks._end_all(exit_hooks.ExitHooks._observed_end)
