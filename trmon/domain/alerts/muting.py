"""Muting: decides whether a due delivery is sent, and why not; a muted alert is recorded and shown like any other."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from enum import Enum

from msgspec import structs

from trmon.domain.alerts.alert import MAX_TRANSITIONS, WITHIN_STEPS, Alert, AlertState, FlapState
from trmon.domain.alerts.delivery import Delivery, DeliveryContext, DeliveryState, RetryPolicy
from trmon.domain.alerts.notification import FiringAlert, Flapping, Notification
from trmon.domain.runs.run import RunState
from trmon.domain.severity import Severity

LATE_SECONDS = 60.0
"""How long after an alert fired its notification is sent even if the alert has ended since."""
RECHECK_SECONDS = 15.0
"""How often a held delivery is checked again."""
ORDER_RECHECK_SECONDS = 1.0
"""How often a delivery that waits for an earlier one of the same alert is checked again."""


class MuteReason(Enum):
    """Why a delivery is not sent."""

    ENDED = "the alert ended before its notification was sent"
    FINISHED = "the run has finished"
    NEVER_NOTIFIED = "the firing notification was not sent"
    ACKNOWLEDGED = "the alert is acknowledged"
    SILENCED = "a silence covers the alert"
    FLAPPING = "flapping: muted until stable"
    REROUTED = "the run has another owner now"
    OUT_OF_ORDER = "waiting for the firing notification"
    SUPERSEDED = "superseded by a newer notification of the incident"
    TAKEN_OVER = "somebody else has acknowledged it since"
    ENDED_ILL = "the notification that the run ended with its incident was sent instead"

    @property
    def recheck_seconds(self) -> float | None:
        """The wait until the reason is checked again; None if it is final."""
        if self is MuteReason.OUT_OF_ORDER:
            return ORDER_RECHECK_SECONDS
        is_held = self in (MuteReason.SILENCED, MuteReason.FLAPPING)
        return RECHECK_SECONDS if is_held else None


def mute_reason(
    delivery: Delivery, context: DeliveryContext, *, now: float, must_repeat: bool = False, is_routed: bool = True
) -> MuteReason | None:
    """Return why a delivery is not sent, or None if it is.

    A firing notification is late after an outage or a mute, and is then sent only while the alert still fires. A
    resolve notification follows the firing one, and goes to each receiver that may have received that one: a failed
    attempt may have arrived.
    Args: must_repeat: the receiver drops alerts that are not sent again, so an acknowledgement does not mute them;
    is_routed: the receiver gets the alerts of the run's owner.
    """
    if delivery.told_state is AlertState.RESOLVED:
        subject = (delivery.receiver, delivery.episode)
        if subject in context.waiting:
            return MuteReason.OUT_OF_ORDER
        if subject in context.tried and context.was_told_after_end(delivery):
            return MuteReason.ENDED_ILL
        return None if subject in context.tried else MuteReason.NEVER_NOTIFIED
    if delivery.is_acknowledgement:
        return _ack_mute_reason(delivery, context)
    if context.run.state is RunState.FINISHED and not context.ends_untold(delivery):
        return MuteReason.FINISHED
    if not is_routed:
        return MuteReason.REROUTED
    if context.is_superseded(delivery):
        return MuteReason.SUPERSEDED
    alert = context.alert_of(delivery)
    if alert is not None and context.ends_untold(delivery):
        return MuteReason.SILENCED if _is_silenced(alert, context, now=now) else None
    was_muted = delivery.state is DeliveryState.HELD
    is_late = was_muted or delivery.rounds > 0 or now - delivery.made_at > LATE_SECONDS
    if alert is None or (alert.state is not AlertState.FIRING and is_late):
        return MuteReason.ENDED
    if alert.episode in context.acked and not must_repeat:
        return MuteReason.ACKNOWLEDGED
    if not delivery.rounds and context.flap_state_of(delivery) is FlapState.ONGOING:
        return MuteReason.FLAPPING
    return MuteReason.SILENCED if _is_silenced(alert, context, now=now) else None


def _ack_mute_reason(delivery: Delivery, context: DeliveryContext) -> MuteReason | None:
    """Return why an acknowledgement is not sent; a silence, and that the alert is acknowledged, do not keep it."""
    alert = context.alert_of(delivery)
    if alert is None or alert.state is not AlertState.FIRING:
        return MuteReason.ENDED
    return None if context.acked.get(alert.episode) == delivery.notification.ack else MuteReason.TAKEN_OVER


def _is_silenced(alert: Alert, context: DeliveryContext, *, now: float) -> bool:
    return any(
        silence.covers(alert, run=context.run.key, owner=context.run.owner, now=now) for silence in context.silences
    )


class DispatchOutcome(Enum):
    """The outcome of a due delivery: delivered; failed, to retry or given up (dead); muted for good, or held."""

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
    """Return the update after a failed attempt: due again after a wait, without a limit for a reminder, or dead."""
    attempts, waiting = delivery.attempts + 1, DeliveryState.STANDING if delivery.rounds else DeliveryState.DUE
    retries = may_succeed and (attempts < retry.max_attempts or delivery.rounds > 0)
    return DeliveryUpdate(
        delivery_id=delivery.id,
        outcome=DispatchOutcome.RETRIED if retries else DispatchOutcome.DEAD,
        state=waiting if retries else DeliveryState.DEAD,
        due_at=now + (retry.wait_seconds(attempts) if retries else 0.0),
        attempts=attempts,
        rounds=delivery.rounds,
        tried_at=now,
        error=error,
    )


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


def enrich_notification(
    delivery: Delivery, context: DeliveryContext, *, now: float, leading: Collection[Alert] | None = None
) -> Notification:
    """Return the notification of a delivery with all firing alerts of the run, its owner, flapping, and who has it.

    Args: leading: the firing alerts that are not part of the run's incident; None: all are.
    """
    notification = delivery.notification
    is_first_told = notification.is_firing and context.ends_untold(delivery)
    over = context.alert_of(delivery) if is_first_told else None
    flaps = context.flap_state_of(delivery) is FlapState.STARTED
    return structs.replace(
        notification,
        key=delivery.key,
        run=structs.replace(notification.run, owner=context.run.owner),
        firing=tuple(
            FiringAlert(
                rule=alert.rule,
                title=(alert.labels.get("title") or alert.labels.get("cause") if alert.is_incident else None)
                or alert.rule,
                severity=alert.severity,
                since_step=alert.since_step,
                summary=alert.summary,
                acknowledged=alert.episode in context.acked,
                muted=MuteReason.SILENCED.value if _is_silenced(alert, context, now=now) else None,
                in_incident=leading is not None and alert not in leading,
            )
            for alert in context.firing
        ),
        flapping=Flapping(transitions=MAX_TRANSITIONS, within_steps=WITHIN_STEPS) if flaps else None,
        told_before=delivery.rounds,
        ended=notification.ended if over is None else over.run_ended,
        ack=context.acked.get(delivery.episode or ""),
        began_at=None if notification.alert.is_incident else notification.alert.since_at,
        alert=structs.replace(notification.alert, severity=Severity.WARN) if is_first_told else notification.alert,
    )
