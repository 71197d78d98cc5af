"""Telling: what becomes of one delivery whose time has come, from whether it is told to what its receiver said."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

import structlog

from trmon.domain.alerts import AlertState, Delivery
from trmon.domain.errors import NotFound
from trmon.domain.muting import Mute, Situation, muted
from trmon.notify.receiver import Outcome, Receiver, Result

MAX_BACKOFF_SECONDS = 600.0

log = structlog.get_logger(__name__)


class Outbox(Protocol):
    """What the teller asks of the store; what it marks is durable when the call returns."""

    def due(self, *, now: float, limit: int) -> list[Delivery]:
        """Return the deliveries that wait and whose time has come, oldest first."""

    def situation(self, run_id: int) -> Situation:
        """Return what is true of a run now. Errors: NotFound."""

    def delivered(self, delivery_id: int, *, now: float, again_at: float | None = None) -> None:
        """Mark a delivery as told, and when it is told again if it is."""

    def failed(self, delivery_id: int, *, now: float, retry_at: float, error: str) -> None:
        """Count a failed try and say when the next one is."""

    def dead(self, delivery_id: int, *, now: float, error: str) -> None:
        """Give a delivery up."""

    def muted(self, delivery_id: int, *, reason: Mute) -> None:
        """Mark a delivery as one that nobody is told."""

    def ended(self, delivery_id: int) -> None:
        """Mark a delivery that was told as done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tries:
    """How long a delivery is tried: the wait doubles from `backoff_seconds` up to ten minutes."""

    max_attempts: int
    backoff_seconds: float

    def wait_seconds(self, attempts: int) -> float:
        """Return the wait after a number of failed tries, from 1."""
        return float(min(self.backoff_seconds * 2.0 ** min(attempts - 1, 32), MAX_BACKOFF_SECONDS))


class Teller:
    """Tells one delivery at a time; may be called from many threads."""

    def __init__(
        self, outbox: Outbox, receivers: Mapping[str, Receiver], *, tries: Tries, count: Callable[[str], None]
    ) -> None:
        self._outbox = outbox
        self._receivers = receivers
        self._tries = tries
        self._count = count

    def tell(self, delivery: Delivery) -> None:
        """Mute a delivery, or try it, and note what became of it."""
        receiver = self._receivers.get(delivery.receiver)
        if receiver is None:
            self._fail(delivery, Result(Outcome.REFUSED, "no such receiver is configured"))
            return
        reason = self._muted(delivery)
        if reason is not None:
            self._mute(delivery, reason)
            return
        result = receiver.deliver(delivery, now=time.time())
        if result.outcome is Outcome.DELIVERED:
            self._done(delivery, repeat_seconds=receiver.repeat_seconds)
        else:
            self._fail(delivery, result)

    def _muted(self, delivery: Delivery) -> Mute | None:
        if delivery.run_id is None or delivery.episode is None:
            return None
        try:
            return muted(delivery, self._outbox.situation(delivery.run_id), now=time.time())
        except NotFound:
            return Mute.ENDED

    def _mute(self, delivery: Delivery, reason: Mute) -> None:
        if delivery.rounds:
            self._outbox.ended(delivery.id)
        else:
            self._outbox.muted(delivery.id, reason=reason)
            self._count("muted")

    def _done(self, delivery: Delivery, *, repeat_seconds: float | None) -> None:
        now = time.time()
        again_at = None
        if repeat_seconds is not None and delivery.episode is not None and delivery.told_state is AlertState.FIRING:
            again_at = now + repeat_seconds
        self._outbox.delivered(delivery.id, now=now, again_at=again_at)
        self._count("delivered")

    def _fail(self, delivery: Delivery, result: Result) -> None:
        """A delivery that was told once is tried for as long as its alert stands, however often it fails."""
        now, attempts = time.time(), delivery.attempts + 1
        if result.outcome is Outcome.RETRY and (attempts < self._tries.max_attempts or delivery.rounds):
            retry_at = now + self._tries.wait_seconds(attempts)
            self._outbox.failed(delivery.id, now=now, retry_at=retry_at, error=result.reason)
            self._count("retried")
        else:
            self._outbox.dead(delivery.id, now=now, error=result.reason)
            self._count("dead")
            log.warning("delivery_dead", receiver=delivery.receiver, attempts=attempts, reason=result.reason)
