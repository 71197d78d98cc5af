"""Transport: how a bundle of messages reaches the service, and what its answer means to the sender."""

from __future__ import annotations

# Loaded here although httpx would do so when it needs them, in the courier's thread: see sender._transport.
import encodings.idna  # noqa: F401
import logging
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from enum import Enum
from typing import Protocol
from urllib.parse import urlsplit

import httpcore  # noqa: F401
import httpx
import msgspec

from trmon_client.config.limits import Limits
from trmon_client.core import wire

MAX_RETRY_AFTER_SECONDS = 600.0
MAX_ANSWER_BYTES = 32 << 20
"""What an answer may have, unpacked; 64 reports of a million sequences each are acknowledged in 8 MB."""

LOGGERS = ("httpx", *(f"httpcore.{part}" for part in ("connection", "http11", "http2", "proxy", "socks")))
"""Of which httpx logs each request as INFO, and httpcore each part of one as DEBUG."""


class UploadOutcome(Enum):
    """What became of a bundle."""

    ANSWERED = "answered"
    """Every message has its acknowledgement."""
    AGAIN = "again"
    """The service is away, busy or not itself: send the same bundle later."""
    DENIED = "denied"
    """The token is missing, unknown or without the right: later may help, once someone has acted."""
    REFUSED = "refused"
    """The service will never take this bundle."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UploadResult:
    """The outcome of one request; `detail` says why it was not ANSWERED, in words for a person."""

    outcome: UploadOutcome
    acks: Sequence[wire.Ack] = ()
    detail: str = ""
    retry_after_seconds: float = 0.0


class Transport(Protocol):
    """Carries bundles to the service; used by one thread."""

    def send(self, messages: Sequence[bytes]) -> UploadResult:
        """Carry encoded messages in one request; never raises for what happens on the way."""

    def close(self) -> None:
        """Let go of the connections."""


class HttpTransport:
    """Posts bundles to `/api/v1/reports`."""

    def __init__(self, url: str, *, token: str | None, limits: Limits) -> None:
        self._url = f"{url}/api/v1/reports"
        self._timeout_seconds = limits.read_timeout_seconds
        headers = {"Content-Type": wire.MSGPACK, "Accept": wire.MSGPACK}
        if token:
            headers["Authorization"] = f"Bearer {token}"
        self._silence = _Silence()
        for name in LOGGERS:
            logging.getLogger(name).addFilter(self._silence)
        self._client = httpx.Client(
            headers=headers,
            timeout=httpx.Timeout(limits.read_timeout_seconds, connect=limits.connect_timeout_seconds),
            # A proxy of the environment cannot reach this machine's own loopback.
            trust_env=urlsplit(url).hostname not in ("localhost", "127.0.0.1", "::1"),
        )

    def send(self, messages: Sequence[bytes]) -> UploadResult:
        """Post the messages as one bundle; what is long in them is compressed already."""
        self._silence.thread = threading.get_ident()
        try:
            with self._client.stream("POST", self._url, content=wire.encode_bundle(list(messages))) as response:
                body = _body(response, timeout_seconds=self._timeout_seconds)
        except (httpx.HTTPError, httpx.InvalidURL, OSError, ValueError) as error:
            return UploadResult(outcome=UploadOutcome.AGAIN, detail=f"{type(error).__name__}: {error}")
        return _read(response, body, n_messages=len(messages))

    def close(self) -> None:
        """Close the connections."""
        self._client.close()
        for name in LOGGERS:
            logging.getLogger(name).removeFilter(self._silence)


class _Silence(logging.Filter):
    """Keeps our own requests, all of one thread, out of the trainer's log."""

    def __init__(self) -> None:
        super().__init__()
        self.thread: int | None = None

    def filter(self, record: logging.LogRecord) -> bool:
        return record.thread is None or record.thread != self.thread


def _body(response: httpx.Response, *, timeout_seconds: float) -> bytes:
    """Errors: httpx.HTTPError for an answer that is too long, or does not end in time however steadily it drips."""
    body, until = bytearray(), time.monotonic() + timeout_seconds
    for part in response.iter_bytes():
        body += part
        if len(body) > MAX_ANSWER_BYTES:
            raise httpx.ReadError(f"HTTP {response.status_code}, an answer of more than {MAX_ANSWER_BYTES} bytes")
        if time.monotonic() > until:
            raise httpx.ReadTimeout(f"HTTP {response.status_code}, an answer that does not end")
    return bytes(body)


def _read(response: httpx.Response, body: bytes, *, n_messages: int) -> UploadResult:
    status = response.status_code
    if status == 200:
        return _read_acks(body, n_messages)
    detail = f"HTTP {status}: {_problem(response, body)}"
    if status in (401, 403):
        return UploadResult(outcome=UploadOutcome.DENIED, detail=detail)
    # Only the service itself can refuse: a 4xx without problem details comes from something in between. That it has
    # no such route says that the url is wrong, and nothing of the messages.
    is_final = 400 <= status < 500 and status not in (404, 405, 408, 429) and _is_problem(response)
    if is_final or status == 413:
        return UploadResult(outcome=UploadOutcome.REFUSED, detail=detail)
    return UploadResult(outcome=UploadOutcome.AGAIN, detail=detail, retry_after_seconds=_retry_after_seconds(response))


def _read_acks(body: bytes, n_messages: int) -> UploadResult:
    try:
        acks = wire.decode_acks(body).acks
    except wire.WireError as error:
        return UploadResult(outcome=UploadOutcome.AGAIN, detail=f"the answer is not trmon's ({error})")
    if len(acks) != n_messages:
        return UploadResult(outcome=UploadOutcome.AGAIN, detail=f"{len(acks)} answers to {n_messages} messages")
    return UploadResult(outcome=UploadOutcome.ANSWERED, acks=acks)


def _is_problem(response: httpx.Response) -> bool:
    content_type: str = response.headers.get("Content-Type", "")
    return content_type.startswith("application/problem+json")


def _problem(response: httpx.Response, body: bytes) -> str:
    if not _is_problem(response):
        return response.reason_phrase
    try:
        problem = msgspec.json.decode(body, type=dict[str, object])
    except (msgspec.DecodeError, ValueError, RecursionError):
        return response.reason_phrase
    return str(problem.get("detail") or problem.get("title") or response.reason_phrase)[:500]


def _retry_after_seconds(response: httpx.Response) -> float:
    value = response.headers.get("Retry-After", "")
    try:
        if not value.endswith("GMT"):
            return min(max(0.0, float(value)), MAX_RETRY_AFTER_SECONDS)
        until, sent = parsedate_to_datetime(value), parsedate_to_datetime(response.headers["Date"])
        return min(max(0.0, (until - sent).total_seconds()), MAX_RETRY_AFTER_SECONDS)
    except (KeyError, TypeError, ValueError):
        return 0.0
