"""Posts bundles of messages to the service over one connection, and reads what its answer means for them."""

from __future__ import annotations

import encodings.idna  # noqa: F401
import importlib.util  # noqa: F401
import io
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from enum import Enum
from http.client import HTTPException
from importlib import import_module
from typing import Any

import msgspec
from urllib3.connection import HTTPConnection
from urllib3.exceptions import HTTPError

from trmon_client.config.settings import Limits
from trmon_client.config.version import __version__
from trmon_client.core import wire
from trmon_client.sending.route import Route, tls_advice


class TimedSocket:
    """Stands for a connection's socket; every read ends by `read_until`, a time of `time.monotonic`.

    It has the reads of both urllib3, which makes a file, and urllib3-future, which calls `recv`.
    """

    def __init__(self, sock: Any) -> None:
        self._sock = sock
        self.read_until = float("inf")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sock, name)

    def recv(self, *args: Any) -> bytes:
        """Receive as a socket does. Errors: TimeoutError."""
        self.limit_read()
        data: bytes = self._sock.recv(*args)
        return data

    def makefile(self, mode: str, **_options: Any) -> io.BufferedReader:
        """Return a file to read from; `mode` is "rb"."""
        return io.BufferedReader(_TimedReader(self, self._sock.makefile(mode, buffering=0)))

    def limit_read(self) -> None:
        """Let the next read take no longer than what is left. Errors: TimeoutError if nothing is."""
        left = self.read_until - time.monotonic()
        if left <= 0:
            raise TimeoutError("timed out")
        if left < float("inf"):
            self._sock.settimeout(left)


class _TimedReader(io.RawIOBase):
    def __init__(self, sock: TimedSocket, file: Any) -> None:
        self._timed_socket = sock
        self._file = file

    def readable(self) -> bool:
        """Say that it can be read."""
        return True

    def readinto(self, buffer: Any) -> int | None:
        """Read as a socket's file does. Errors: TimeoutError."""
        self._timed_socket.limit_read()
        n_bytes: int | None = self._file.readinto(buffer)
        return n_bytes

    def close(self) -> None:
        """Close the socket's file, which closes a socket that waits for it."""
        self._file.close()
        super().close()


# Used by a request, in the uploader's thread, which must not import a module: see encoder._transport.


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


def _parts(body: bytes) -> Iterator[bytes]:
    for start in range(0, len(body), PART_BYTES):
        yield body[start : start + PART_BYTES]


def _read_body(response: Any) -> bytes:
    body = bytearray()
    while part := response.read1(PART_BYTES):
        body += part
        if len(body) > MAX_ANSWER_BYTES:
            raise AnswerError(f"HTTP {response.status}, an answer of more than {MAX_ANSWER_BYTES} bytes")
    return bytes(body)


MAX_RETRY_AFTER_SECONDS = 600.0


class UploadOutcome(Enum):
    """The outcome of sending a bundle."""

    ANSWERED = "answered"
    """Every message has its acknowledgement."""
    AGAIN = "again"
    """The service is unreachable, busy, or something else answered: send the same bundle later."""
    DENIED = "denied"
    """The token is missing, unknown or lacks the scope: retrying helps only after someone has fixed it."""
    REFUSED = "refused"
    """The service will never accept this bundle."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UploadResult:
    """The outcome of one request; `detail` says in plain words why it was not ANSWERED."""

    outcome: UploadOutcome
    acks: Sequence[wire.Ack] = ()
    detail: str = ""
    retry_after_seconds: float = 0.0


class HttpTransport:
    """Posts bundles to `/api/v1/reports` over one connection; used by one thread.

    It has no pool: a pool's lock that a thread holds while the trainer forks stays locked in the child for ever.
    """

    def __init__(self, url: str, *, token: str | None, limits: Limits) -> None:
        # Made once: loading certificates takes milliseconds, and in another thread a fork of the trainer may hang.
        self._route = Route(f"{url}/api/v1/reports")
        self._limits = limits
        self._connection: HTTPConnection | None = None
        self._socket: TimedSocket | None = None
        self._used_at = 0.0
        self._headers = {
            "Content-Type": wire.MSGPACK,
            "Accept": wire.MSGPACK,
            "User-Agent": f"trmon-client/{__version__}",
            **self._route.headers,
        }
        if token:
            self._headers["Authorization"] = f"Bearer {token}"

    def send(self, messages: Sequence[bytes]) -> UploadResult:
        """Post the messages as one bundle, whose long parts are compressed already; no failure on the way raises."""
        try:
            answer = self._exchange(self._opened(), wire.encode_bundle(list(messages)))
        except (HTTPError, HTTPException, OSError, ValueError) as error:
            self.close()
            return UploadResult(
                outcome=UploadOutcome.AGAIN, detail=f"{type(error).__name__}: {error}{tls_advice(error)}"
            )
        except BaseException:
            self.close()
            raise
        self._used_at = time.monotonic()
        return _read(answer, n_messages=len(messages))

    def close(self) -> None:
        """Close the connection; the next bundle opens a new one."""
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

    def _exchange(self, connection: HTTPConnection, body: bytes) -> HttpAnswer:
        # A service may answer before it has read everything, for example with 413.
        with suppress(BrokenPipeError, ConnectionResetError):
            connection.request(
                "POST",
                self._route.request_target,
                body=_parts(body),
                headers={**self._headers, "Content-Length": str(len(body))},
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
            return HttpAnswer(response.status, response.reason or "", response.headers, _read_body(response))
        except (HTTPError, HTTPException, OSError) as error:
            if time.monotonic() < until:
                raise
            raise AnswerError(f"no complete answer within {seconds:g} s") from error


def _read(answer: HttpAnswer, *, n_messages: int) -> UploadResult:
    status = answer.status
    if status == 200:
        return _read_acks(answer.body, n_messages)
    detail = f"HTTP {status}: {_problem(answer)}"
    if status in (401, 403):
        return UploadResult(outcome=UploadOutcome.DENIED, detail=detail)
    if status in (404, 405):
        detail = f"{detail}; correct url= (TRMON_URL), which is the address of the service without a page's path"
    # Only the service itself can refuse: a 4xx without problem details comes from something in between. A missing
    # route says that the URL is wrong, and nothing about the messages.
    is_final = 400 <= status < 500 and status not in (404, 405, 408, 429) and _is_problem(answer)
    if is_final or status == 413:
        return UploadResult(outcome=UploadOutcome.REFUSED, detail=detail)
    return UploadResult(outcome=UploadOutcome.AGAIN, detail=detail, retry_after_seconds=_retry_after_seconds(answer))


def _read_acks(body: bytes, n_messages: int) -> UploadResult:
    try:
        acks = wire.decode_acks(body).acks
    except wire.WireError as error:
        return UploadResult(outcome=UploadOutcome.AGAIN, detail=f"the answer is not trmon's ({error})")
    if len(acks) != n_messages:
        return UploadResult(outcome=UploadOutcome.AGAIN, detail=f"{len(acks)} answers to {n_messages} messages")
    return UploadResult(outcome=UploadOutcome.ANSWERED, acks=acks)


def _is_problem(answer: HttpAnswer) -> bool:
    content_type: str = answer.headers.get("Content-Type", "")
    return content_type.startswith("application/problem+json")


def _problem(answer: HttpAnswer) -> str:
    if not _is_problem(answer):
        return answer.reason
    try:
        problem = msgspec.json.decode(answer.body, type=dict[str, object])
    except (msgspec.DecodeError, ValueError, RecursionError):
        return answer.reason
    return str(problem.get("detail") or problem.get("title") or answer.reason)[:500]


def _retry_after_seconds(answer: HttpAnswer) -> float:
    value = answer.headers.get("Retry-After", "")
    try:
        if not value.endswith("GMT"):
            return min(max(0.0, float(value)), MAX_RETRY_AFTER_SECONDS)
        until, sent = parsedate_to_datetime(value), parsedate_to_datetime(answer.headers["Date"])
        return min(max(0.0, (until - sent).total_seconds()), MAX_RETRY_AFTER_SECONDS)
    except (KeyError, TypeError, ValueError):
        return 0.0
