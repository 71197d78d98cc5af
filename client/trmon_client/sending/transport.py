"""Post bundles of messages to the service, and read what its answer means for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from enum import Enum
from http.client import HTTPException
from typing import Protocol

import msgspec
from urllib3.exceptions import HTTPError

from trmon_client.config.limits import Limits
from trmon_client.config.version import __version__
from trmon_client.core import wire
from trmon_client.sending.connection import HttpAnswer, ServiceConnection

MAX_RETRY_AFTER_SECONDS = 600.0


class UploadOutcome(Enum):
    """What happened to a bundle."""

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


class Transport(Protocol):
    """Carries bundles to the service; used by one thread."""

    def send(self, messages: Sequence[bytes]) -> UploadResult:
        """Send encoded messages in one request; no failure on the way raises."""

    def close(self) -> None:
        """Close the connections."""


class HttpTransport:
    """Posts bundles to `/api/v1/reports`."""

    def __init__(self, url: str, *, token: str | None, limits: Limits) -> None:
        self._connection = ServiceConnection(f"{url}/api/v1/reports", limits=limits)
        self._headers = {
            "Content-Type": wire.MSGPACK,
            "Accept": wire.MSGPACK,
            "User-Agent": f"trmon-client/{__version__}",
        }
        if token:
            self._headers["Authorization"] = f"Bearer {token}"

    def send(self, messages: Sequence[bytes]) -> UploadResult:
        """Post the messages as one bundle; their long parts are compressed already."""
        try:
            answer = self._connection.post(wire.encode_bundle(list(messages)), headers=self._headers)
        except (HTTPError, HTTPException, OSError, ValueError) as error:
            return UploadResult(outcome=UploadOutcome.AGAIN, detail=f"{type(error).__name__}: {error}")
        return _read(answer, n_messages=len(messages))

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


def _read(answer: HttpAnswer, *, n_messages: int) -> UploadResult:
    status = answer.status
    if status == 200:
        return _read_acks(answer.body, n_messages)
    detail = f"HTTP {status}: {_problem(answer)}"
    if status in (401, 403):
        return UploadResult(outcome=UploadOutcome.DENIED, detail=detail)
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
