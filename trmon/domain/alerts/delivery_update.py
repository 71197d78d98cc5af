"""Updates of deliveries: what an attempt, or a mute, changes in the outbox."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from trmon.domain.alerts.delivery import Delivery, DeliveryState
from trmon.domain.alerts.muting import MuteReason
from trmon.domain.alerts.retry import RetryPolicy


class DispatchOutcome(Enum):
    """What happened to a due delivery: delivered; failed, to retry or given up (dead); muted for good, or held."""

    DELIVERED = "delivered"
    RETRIED = "retried"
    DEAD = "dead"
    MUTED = "muted"
    HELD = "held"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryUpdate:
    """The new state of a delivery; `tried_at` is None if nothing was sent, `error` is set only after a failure."""

    delivery_id: int
    outcome: DispatchOutcome
    state: DeliveryState
    due_at: float
    attempts: int
    rounds: int
    tried_at: float | None = None
    error: str | None = None
    mute: MuteReason | None = None


def update_after_success(delivery: Delivery, *, now: float, repeat_seconds: float | None) -> DeliveryUpdate:
    """Return the update after the receiver took it: done, or due again after `repeat_seconds` while its alert fires."""
    repeats = repeat_seconds is not None
    return DeliveryUpdate(
        delivery_id=delivery.id,
        outcome=DispatchOutcome.DELIVERED,
        state=DeliveryState.STANDING if repeats else DeliveryState.DELIVERED,
        due_at=now + (repeat_seconds or 0.0),
        attempts=0 if repeats else delivery.attempts + 1,
        rounds=delivery.rounds + 1,
        tried_at=now,
    )


def update_after_failure(
    delivery: Delivery, *, now: float, error: str, retry: RetryPolicy, may_succeed: bool
) -> DeliveryUpdate:
    """Return the update after a failed attempt: due again after a wait, or dead.

    A reminder is retried while its alert fires, without a limit on attempts.
    """
    attempts = delivery.attempts + 1
    retries = may_succeed and (attempts < retry.max_attempts or delivery.rounds > 0)
    return DeliveryUpdate(
        delivery_id=delivery.id,
        outcome=DispatchOutcome.RETRIED if retries else DispatchOutcome.DEAD,
        state=_waiting_state(delivery) if retries else DeliveryState.DEAD,
        due_at=now + (retry.wait_seconds(attempts) if retries else 0.0),
        attempts=attempts,
        rounds=delivery.rounds,
        tried_at=now,
        error=error,
    )


def _waiting_state(delivery: Delivery) -> DeliveryState:
    return DeliveryState.STANDING if delivery.rounds else DeliveryState.DUE


def update_after_mute(delivery: Delivery, *, now: float, reason: MuteReason) -> DeliveryUpdate:
    """Return the update after a mute: held if the reason may pass, otherwise muted for good."""
    if reason.recheck_seconds is not None:
        state = DeliveryState.HELD
    else:
        state = DeliveryState.DELIVERED if delivery.rounds else DeliveryState.MUTED
    return DeliveryUpdate(
        delivery_id=delivery.id,
        outcome=DispatchOutcome.HELD if state is DeliveryState.HELD else DispatchOutcome.MUTED,
        state=state,
        due_at=now + (reason.recheck_seconds or 0.0),
        attempts=delivery.attempts,
        rounds=delivery.rounds,
        mute=None if state is DeliveryState.DELIVERED else reason,
    )
