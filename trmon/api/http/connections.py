"""Uvicorn's connections: limits on number, bytes of headers and time without progress; answers leave in one packet."""

from __future__ import annotations

import asyncio
import resource
from http import HTTPStatus
from typing import Any, cast

import structlog
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol
from uvicorn.server import ServerState

from trmon.api.http.auth import HEADERS
from trmon.api.http.problems import problem_details


class CoalescingTransport:
    """A transport that buffers writes until `flush`, for at most one turn of the loop."""

    def __init__(self, transport: asyncio.Transport, *, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._buffer: list[bytes] = []

    def write(self, data: bytes) -> None:
        """Buffer data."""
        if not self._buffer:
            self._loop.call_soon(self.flush)
        self._buffer.append(data)

    def flush(self) -> None:
        """Send the buffered data, unless the connection is closing."""
        data, self._buffer = self._buffer, []
        if data and not self._transport.is_closing():
            self._transport.write(b"".join(data))

    def close(self) -> None:
        """Send the buffered data and close the connection."""
        self.flush()
        self._transport.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


MAX_HEAD_BYTES = 64 << 10
"""Maximum size of a request line with its headers, and of what lies between two pieces of a body or follows it."""
LATE_SECONDS = 1.0
"""A check that is this late was delayed by the service itself."""


MAX_CONNECTIONS = 4096
RESERVED_DESCRIPTORS = 256
"""For the database, receivers and files."""
PROGRESS_BYTES = 4 << 10
"""A body that brings as much has made progress."""
LOG_SECONDS = 60.0

log = structlog.get_logger(__name__)


class OpenConnections(ServerState):
    """The connections of a server, as many as the process has descriptors for.

    Where one too many is opened, that client's is closed which has let the service wait for longest: slow clients make
    room for each other, while one that sends its request at once is answered.
    """

    def __init__(self, most: int | None = None) -> None:
        """Args: most: connections at a time; by default, from the limit of the process, which is raised."""
        super().__init__()
        self._most = _affordable_connections() if most is None else most
        self._waited_for: dict[LimitedProtocol, None] = {}
        """The connections whose next step is their client's, the one without progress for longest first."""
        self._n_closed = 0
        self._logged_at = float("-inf")

    def wait_for(self, connection: LimitedProtocol) -> None:
        """Record that the next step is the client's, or that it has made progress."""
        self._waited_for.pop(connection, None)
        self._waited_for[connection] = None

    def serve(self, connection: LimitedProtocol) -> None:
        """Record that the next step is the service's, or that the connection is closed."""
        self._waited_for.pop(connection, None)

    def make_room(self, now: float) -> None:
        """Close a connection if there are too many. Args: now: of the event loop's clock, in seconds."""
        if len(self.connections) <= self._most:
            return
        slowest = next((one for one in self._waited_for if one.may_be_closed()), None)
        if slowest is not None:
            self.serve(slowest)
            slowest.close_for_others()
        self._n_closed += 1
        if now - self._logged_at >= LOG_SECONDS:
            log.warning("too_many_connections", most=self._most, closed=self._n_closed)
            self._n_closed, self._logged_at = 0, now


def _affordable_connections() -> int:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MAX_CONNECTIONS + RESERVED_DESCRIPTORS
    if soft < wanted:
        soft = min(wanted, hard) if hard != resource.RLIM_INFINITY else wanted
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return max(min(MAX_CONNECTIONS, soft - RESERVED_DESCRIPTORS), 64)


class HeadersTooLargeError(Exception):
    """Stops the parser at the end of headers that are too large."""


class LimitedProtocol(HttpToolsProtocol):
    """Uvicorn's protocol, which refuses large headers with 431 and clients without progress with 408.

    It sends a response when it is complete, or at the loop's next turn.

    A connection may take `max_wait_seconds` to begin a request, and as long to complete its headers; a body must bring
    `min_body_bytes` in each period of that length. Time in which the client waits for the service does not count.
    """

    max_wait_seconds = 10.0
    min_body_bytes = 40 << 10

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Wrap the transport, and start to check the client's progress."""
        self._coalescing = CoalescingTransport(cast(asyncio.Transport, transport), loop=self.loop)
        super().connection_made(cast(asyncio.Transport, self._coalescing))
        self._open_connections = cast(OpenConnections, self.server_state)
        self._open_connections.wait_for(self)
        self._unparsed_bytes = 0
        """Bytes since the last end of headers, piece of a body or end of a request."""
        self._in_body = False
        self._body_bytes = 0
        self._progress_bytes = 0
        self._since = self._check_at = self.loop.time()
        self._check_progress()
        self._open_connections.make_room(self._since)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop checking."""
        self._timer.cancel()
        self._open_connections.serve(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse data in short pieces, because the parser's time for one header grows with the square of its length."""
        if not self._in_body and not self._unparsed_bytes:
            self._since = self.loop.time()
        for start in range(0, len(data), MAX_HEAD_BYTES):
            piece = data[start : start + MAX_HEAD_BYTES]
            self._unparsed_bytes += len(piece)
            super().data_received(piece)
            if self._unparsed_bytes > MAX_HEAD_BYTES:
                self._refuse_headers()
            if self.transport.is_closing():
                return

    def send_400_response(self, msg: str) -> None:
        """Refuse what the parser has refused."""
        if self._unparsed_bytes > MAX_HEAD_BYTES:
            self._refuse_headers()
        elif self._may_answer():
            super().send_400_response(msg)
        else:
            self.transport.close()

    def on_headers_complete(self) -> None:
        """Pass the request on without its trailers, which are not headers. Errors: HeadersTooLargeError."""
        if self._unparsed_bytes > MAX_HEAD_BYTES and self._head_bytes() > MAX_HEAD_BYTES:
            raise HeadersTooLargeError
        super().on_headers_complete()
        self.headers = []
        self._unparsed_bytes = self._body_bytes = 0
        self._in_body, self._since = True, self.loop.time()
        self._open_connections.wait_for(self)

    def on_body(self, body: bytes) -> None:
        """Count a piece of the body as progress."""
        self._unparsed_bytes = 0
        self._body_bytes += len(body)
        self._progress_bytes += len(body)
        if self._progress_bytes >= PROGRESS_BYTES:
            self._progress_bytes = 0
            self._open_connections.wait_for(self)
        super().on_body(body)

    def on_message_complete(self) -> None:
        """End the request."""
        self._unparsed_bytes = 0
        self._in_body, self._since = False, self.loop.time()
        self._open_connections.serve(self)
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """Send the complete response, and count the time of the next request from now on."""
        self._coalescing.flush()
        self._since = self.loop.time()
        self._open_connections.wait_for(self)
        super().on_response_complete()

    def may_be_closed(self) -> bool:
        """Return whether the next step is the client's."""
        return not self._waits_for_service(late_seconds=0.0)

    def close_for_others(self) -> None:
        """Close the connection, which others need; a request that has begun is answered with 503."""
        if self._in_body or self._unparsed_bytes:
            detail = "the service has more connections than it can hold, and others sent sooner; send again"
            self._refuse(HTTPStatus.SERVICE_UNAVAILABLE, "too-many-connections", detail=detail)
        else:
            self.transport.close()

    def _head_bytes(self) -> int:
        return len(self.url) + sum(len(name) + len(value) + len(b": \r\n") for name, value in self.headers)

    def _check_progress(self) -> None:
        """Refuse a client without progress; check again when it could have made too little."""
        now = self.loop.time()
        if self.transport.is_closing():
            return
        if self._waits_for_service(late_seconds=now - self._check_at):
            self._since, self._body_bytes = now, 0
        elif now - self._since >= self.max_wait_seconds:
            if self._in_body and self._body_bytes >= self.min_body_bytes:
                self._since, self._body_bytes = now, 0
            else:
                self._time_out()
                return
        self._check_at = self._since + self.max_wait_seconds
        self._timer = self.loop.call_at(self._check_at, self._check_progress)

    def _waits_for_service(self, *, late_seconds: float) -> bool:
        """Return whether the next step is the service's."""
        if late_seconds > LATE_SECONDS or self.flow.read_paused:
            return True
        if self._in_body:
            return self.cycle.waiting_for_100_continue
        return self.cycle is not None and not self.cycle.response_complete

    def _time_out(self) -> None:
        detail = f"headers must be complete within {self.max_wait_seconds:g} seconds"
        if self._in_body:
            detail = f"a body must bring {self.min_body_bytes} bytes in each {self.max_wait_seconds:g} seconds"
        if self._in_body or self._unparsed_bytes:
            self._refuse(HTTPStatus.REQUEST_TIMEOUT, "request-timeout", detail=detail)
        else:
            self.transport.close()

    def _refuse_headers(self) -> None:
        self._refuse(
            HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE,
            "headers-too-large",
            detail=f"a request line and its headers may have at most {MAX_HEAD_BYTES} bytes",
        )

    def _refuse(self, status: HTTPStatus, kind: str, *, detail: str) -> None:
        """Answer with a problem, unless that would interrupt another answer, and close the connection."""
        if self._may_answer():
            problem = problem_details(status, kind, detail=detail, headers={**HEADERS, "Connection": "close"})
            lines = (name + b": " + value + b"\r\n" for name, value in problem.raw_headers)
            self.transport.write(STATUS_LINE[status] + b"".join(lines) + b"\r\n" + bytes(problem.body))
        self.transport.close()

    def _may_answer(self) -> bool:
        """Return whether the request that is being received is the next to answer, and has no answer yet."""
        if self.transport.is_closing() or self.pipeline:
            return False
        return self.cycle is None or (
            not self.cycle.response_started if self._in_body else self.cycle.response_complete
        )
