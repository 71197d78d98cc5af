"""A server of the wire format over real sockets that answers, refuses, hangs or hangs up as a test scripts it."""

from __future__ import annotations

import json
import socketserver
import ssl
import threading
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, TypeVar

from trmon_client.core import wire

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
    """Return the TLS settings of a server."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(CERTIFICATE)
    return context


ACCEPT = Answer()
HANG = Answer(hangs=True)
HANG_UP = Answer(hangs_up=True)


@dataclass(frozen=True)
class Request:
    """One received request."""

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
    """Acknowledge any message."""
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
