"""One HTTP connection to the service: time limits, reconnects, and answers of bounded size."""

from __future__ import annotations

# Used by a request, in the uploader's thread, which must not import a module: see encoder._transport.
import encodings.idna  # noqa: F401
import importlib.util  # noqa: F401
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from http.client import HTTPException
from importlib import import_module
from typing import Any

from urllib3.connection import HTTPConnection
from urllib3.exceptions import HTTPError

from trmon_client.config.limits import Limits
from trmon_client.sending.route import Route
from trmon_client.sending.timed_socket import TimedSocket

# urllib3-future, which takes the place of urllib3 where it is installed, would import its protocols in that thread.
for _module in ("http1._h11", "http2._h2"):
    with suppress(ImportError):
        import_module(f"urllib3.contrib.hface.protocols.{_module}")

MAX_ANSWER_BYTES = 32 << 20
"""The maximum size of an answer; 64 reports of a million sequences each are acknowledged in 8 MB."""

IDLE_SECONDS = 5.0
"""A connection that was idle for longer is reopened: load balancers drop idle connections silently."""

PART_BYTES = 1 << 16
"""The size of the parts in which a body is sent and read; each part that is sent has the time limit of an answer."""


class AnswerError(OSError):
    """The answer is too long, or does not end in time."""


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """An answer, read to its end."""

    status: int
    reason: str
    headers: Mapping[str, str]
    body: bytes


class ServiceConnection:
    """Posts requests to one URL over one connection; used by one thread.

    It has no pool: a pool's lock that a thread holds while the trainer forks stays locked in the child for ever.
    """

    def __init__(self, url: str, *, limits: Limits) -> None:
        # Made once: loading certificates takes milliseconds, and in another thread a fork of the trainer may hang.
        self._route = Route(url)
        self._limits = limits
        self._connection: HTTPConnection | None = None
        self._socket: TimedSocket | None = None
        self._used_at = 0.0

    def post(self, body: bytes, *, headers: Mapping[str, str]) -> HttpAnswer:
        """Post a body and return the answer.

        Errors: OSError, ValueError, `http.client.HTTPException` or `urllib3.exceptions.HTTPError`; the next call
        then opens a new connection.
        """
        try:
            answer = self._exchange(self._opened(), body, headers)
        except BaseException:
            self.close()
            raise
        self._used_at = time.monotonic()
        return answer

    def close(self) -> None:
        """Close the connection; a later call of `post` opens a new one."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _opened(self) -> HTTPConnection:
        is_idle = time.monotonic() - self._used_at > IDLE_SECONDS
        if self._connection is None or is_idle or not self._connection.is_connected:
            self.close()
            self._connection = self._route.new_connection(timeout_seconds=self._limits.connect_timeout_seconds)
            self._connection.connect()
            self._connection.timeout = self._limits.read_timeout_seconds
            stand_in: Any = TimedSocket(self._connection.sock)
            self._connection.sock = self._socket = stand_in
        return self._connection

    def _exchange(self, connection: HTTPConnection, body: bytes, headers: Mapping[str, str]) -> HttpAnswer:
        # A service may answer before it has read everything, for example with 413.
        with suppress(BrokenPipeError, ConnectionResetError):
            connection.request(
                "POST",
                self._route.request_target,
                body=_parts(body),
                headers={**self._route.headers, **headers, "Content-Length": str(len(body))},
                preload_content=False,
                decode_content=False,
            )
        return self._read_answer(connection)

    def _read_answer(self, connection: HTTPConnection) -> HttpAnswer:
        seconds = self._limits.read_timeout_seconds
        until = time.monotonic() + seconds
        if self._socket is not None:
            self._socket.read_until = until
        try:
            response = connection.getresponse()
            return HttpAnswer(response.status, response.reason or "", response.headers, _read(response))
        except (HTTPError, HTTPException, OSError) as error:
            if time.monotonic() < until:
                raise
            raise AnswerError(f"no complete answer within {seconds:g} s") from error


def _parts(body: bytes) -> Iterator[bytes]:
    for start in range(0, len(body), PART_BYTES):
        yield body[start : start + PART_BYTES]


def _read(response: Any) -> bytes:
    body = bytearray()
    while part := response.read1(PART_BYTES):
        body += part
        if len(body) > MAX_ANSWER_BYTES:
            raise AnswerError(f"HTTP {response.status}, an answer of more than {MAX_ANSWER_BYTES} bytes")
    return bytes(body)
