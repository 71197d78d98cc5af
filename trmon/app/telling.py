"""Telling: what becomes of one delivery whose time has come, from whether it is told to what its receiver said."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

import structlog

from trmon.domain.alerts import Delivery
from trmon.domain.errors import NotFound
from trmon.domain.muting import Mute, Situation, muted
from trmon.domain.telling import again_after, presented
from trmon.notify.receiver import Outcome, Receiver, Result

MAX_BACKOFF_SECONDS = 600.0
HELD_SECONDS = 15.0
"""How often it is looked whether what was muted may be told."""

log = structlog.get_logger(__name__)


class Outbox(Protocol):
    """What the teller asks of the store; what it marks is durable when the call returns."""

    def due(self, *, now: float, limit: int) -> list[Delivery]:
        """Return the deliveries that wait and whose time has come, oldest first."""

    def situation(self, run_id: int, *, now: float) -> Situation:
        """Return what is true of a run now. Errors: NotFound."""

    def delivered(self, delivery_id: int, *, now: float, again_at: float | None = None) -> None:
        """Mark a delivery as told, and when it is told again if it is."""

    def failed(self, delivery_id: int, *, now: float, retry_at: float, error: str) -> None:
        """Count a failed try and say when the next one is."""

    def dead(self, delivery_id: int, *, now: float, error: str) -> None:
        """Give a delivery up."""

    def muted(self, delivery_id: int, *, reason: Mute) -> None:
        """Mark a delivery as one that nobody is told."""

    def held(self, delivery_id: int, *, reason: Mute, until: float) -> None:
        """Mark a delivery as one that nobody is told for now, and when to look again."""

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
        self,
        outbox: Outbox,
        receivers: Mapping[str, Receiver],
        *,
        tries: Tries,
        remind_seconds: float,
        count: Callable[[str], None],
    ) -> None:
        self._outbox = outbox
        self._receivers = receivers
        self._tries = tries
        self._remind_seconds = remind_seconds
        self._count = count

    def tell(self, delivery: Delivery) -> None:
        """Mute a delivery, or try it, and note what became of it."""
        receiver = self._receivers.get(delivery.receiver)
        if receiver is None:
            self._fail(delivery, Result(Outcome.REFUSED, "no such receiver is configured"))
        elif delivery.run_id is None or delivery.episode is None:
            self._try(delivery, receiver, again_after_seconds=None)
        else:
            self._tell_of(delivery, receiver, run_id=delivery.run_id)

    def _tell_of(self, delivery: Delivery, receiver: Receiver, *, run_id: int) -> None:
        now = time.time()
        try:
            situation = self._outbox.situation(run_id, now=now)
        except NotFound:
            self._mute(delivery, Mute.ENDED, now=now)
            return
        reason = muted(delivery, situation, now=now, forgets=receiver.repeat_seconds is not None)
        if reason is not None:
            self._mute(delivery, reason, now=now)
            return
        again = again_after(
            delivery, situation, remind_seconds=self._remind_seconds, repeat_seconds=receiver.repeat_seconds
        )
        self._try(presented(delivery, situation, now=now), receiver, again_after_seconds=again)

    def _try(self, delivery: Delivery, receiver: Receiver, *, again_after_seconds: float | None) -> None:
        result = receiver.deliver(delivery, now=time.time())
        if result.outcome is not Outcome.DELIVERED:
            self._fail(delivery, result)
            return
        now = time.time()
        again_at = None if again_after_seconds is None else now + again_after_seconds
        self._outbox.delivered(delivery.id, now=now, again_at=again_at)
        self._count("delivered")

    def _mute(self, delivery: Delivery, reason: Mute, *, now: float) -> None:
        if reason.may_lift:
            self._outbox.held(delivery.id, reason=reason, until=now + HELD_SECONDS)
        elif delivery.rounds:
            self._outbox.ended(delivery.id)
        else:
            self._outbox.muted(delivery.id, reason=reason)
            self._count("muted")

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
