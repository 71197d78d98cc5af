"""Settlement: what one look at a delivery, or one try of it, makes of it in the outbox."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from trmon.domain.alerts.alert import Delivery, DeliveryState
from trmon.domain.alerts.muting import MuteReason

MAX_BACKOFF_SECONDS = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """How long a delivery is tried: the wait doubles from `backoff_seconds` up to ten minutes."""

    max_attempts: int
    backoff_seconds: float

    def wait_seconds(self, attempts: int) -> float:
        """Return the wait after a number of failed tries, from 1."""
        return float(min(self.backoff_seconds * 2.0 ** min(attempts - 1, 32), MAX_BACKOFF_SECONDS))


class SettlementKind(Enum):
    """What became of a delivery: taken; failed, and tried again or given up; nobody is told, for good or for now."""

    DELIVERED = "delivered"
    RETRIED = "retried"
    DEAD = "dead"
    MUTED = "muted"
    HELD = "held"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settlement:
    """Where a delivery is now; `tried_at` is None where its receiver was not asked, `error` where it did not fail."""

    delivery_id: int
    outcome: SettlementKind
    state: DeliveryState
    due_at: float
    attempts: int
    rounds: int
    tried_at: float | None = None
    error: str | None = None
    mute: MuteReason | None = None


def settle_sent(delivery: Delivery, *, now: float, again_after_seconds: float | None) -> Settlement:
    """Return that the receiver took it: done with, or told again after a while for as long as its alert stands."""
    again = again_after_seconds is not None
    return Settlement(
        delivery_id=delivery.id,
        outcome=SettlementKind.DELIVERED,
        state=DeliveryState.STANDING if again else DeliveryState.DELIVERED,
        due_at=now + (again_after_seconds or 0.0),
        attempts=0 if again else delivery.attempts + 1,
        rounds=delivery.rounds + 1,
        tried_at=now,
    )


def settle_failed(delivery: Delivery, *, now: float, error: str, tries: RetryPolicy, may_succeed: bool) -> Settlement:
    """Return when it is tried again, or that it is given up.

    What was told once is tried for as long as its alert stands, however often that fails.
    """
    attempts = delivery.attempts + 1
    again = may_succeed and (attempts < tries.max_attempts or delivery.rounds > 0)
    return Settlement(
        delivery_id=delivery.id,
        outcome=SettlementKind.RETRIED if again else SettlementKind.DEAD,
        state=_waiting(delivery) if again else DeliveryState.DEAD,
        due_at=now + (tries.wait_seconds(attempts) if again else 0.0),
        attempts=attempts,
        rounds=delivery.rounds,
        tried_at=now,
        error=error,
    )


def _waiting(delivery: Delivery) -> DeliveryState:
    return DeliveryState.STANDING if delivery.rounds else DeliveryState.DUE


def settle_muted(delivery: Delivery, *, now: float, reason: MuteReason) -> Settlement:
    """Return that nobody is told: for now, where the reason may pass, else for good."""
    if reason.looked_again_after_seconds is not None:
        state = DeliveryState.HELD
    else:
        state = DeliveryState.DELIVERED if delivery.rounds else DeliveryState.MUTED
    return Settlement(
        delivery_id=delivery.id,
        outcome=SettlementKind.HELD if state is DeliveryState.HELD else SettlementKind.MUTED,
        state=state,
        due_at=now + (reason.looked_again_after_seconds or 0.0),
        attempts=delivery.attempts,
        rounds=delivery.rounds,
        mute=None if state is DeliveryState.DELIVERED else reason,
    )
