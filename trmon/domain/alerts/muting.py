"""Muting: decides whether a due delivery is sent, and names the reason if it is not.

A muted alert is recorded and shown like any other.
"""

from __future__ import annotations

from enum import Enum

from trmon.domain.alerts.alert import Alert, AlertState
from trmon.domain.alerts.delivery import Delivery, DeliveryState
from trmon.domain.alerts.delivery_context import DeliveryContext
from trmon.domain.alerts.flapping import FlapState
from trmon.domain.alerts.inhibition import inhibiting_alert
from trmon.domain.runs.run import RunState

LATE_SECONDS = 60.0
"""How long after an alert fired its notification is sent even if the alert has ended since."""
RECHECK_SECONDS = 15.0
"""How often a held delivery is checked again."""
ORDER_RECHECK_SECONDS = 1.0
"""How often a delivery that waits for an earlier one of the same alert is checked again."""


class MuteReason(Enum):
    """Why a delivery is not sent."""

    ENDED = "the alert ended before it could be told"
    FINISHED = "the run has finished"
    NEVER_NOTIFIED = "nobody was told that the alert fired"
    ACKNOWLEDGED = "somebody has acknowledged the alert"
    SILENCED = "a silence covers the alert"
    INHIBITED = "a cause of the alert fires on the same run"
    FLAPPING = "the alert flaps, and that was said"
    REROUTED = "the run has another owner now"
    OUT_OF_ORDER = "that the alert fired is still being told"
    SUPERSEDED = "a newer notification of the incident says more"
    ENDED_ILL = "it was told that the run ended ill"

    @property
    def recheck_seconds(self) -> float | None:
        """The wait until the reason is checked again; None if it is final."""
        if self is MuteReason.OUT_OF_ORDER:
            return ORDER_RECHECK_SECONDS
        is_held = self in (MuteReason.SILENCED, MuteReason.INHIBITED, MuteReason.FLAPPING)
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
        return _resolve_mute_reason(delivery, context)
    if context.run.state is RunState.FINISHED and not context.ends_ill(delivery):
        return MuteReason.FINISHED
    if not is_routed:
        return MuteReason.REROUTED
    if context.is_superseded(delivery):
        return MuteReason.SUPERSEDED
    alert = context.alert_of(delivery)
    if alert is not None and context.ends_ill(delivery):
        return MuteReason.SILENCED if _is_silenced(alert, context, now=now) else None
    if alert is None:
        return MuteReason.ENDED
    if alert.state is not AlertState.FIRING and _is_late(delivery, now=now):
        return MuteReason.ENDED
    if alert.episode in context.acked and not must_repeat:
        return MuteReason.ACKNOWLEDGED
    if not delivery.rounds and context.flap_state_of(delivery) is FlapState.ONGOING:
        return MuteReason.FLAPPING
    return alert_mute_reason(alert, context, now=now)


def _is_late(delivery: Delivery, *, now: float) -> bool:
    """Return whether a firing notification has no value once its alert has ended."""
    was_muted = delivery.state is DeliveryState.HELD
    return was_muted or delivery.rounds > 0 or now - delivery.made_at > LATE_SECONDS


def _resolve_mute_reason(delivery: Delivery, context: DeliveryContext) -> MuteReason | None:
    subject = (delivery.receiver, delivery.episode)
    if subject in context.waiting:
        return MuteReason.OUT_OF_ORDER
    if subject in context.tried and context.was_told_after_end(delivery):
        return MuteReason.ENDED_ILL
    return None if subject in context.tried else MuteReason.NEVER_NOTIFIED


def _is_silenced(alert: Alert, context: DeliveryContext, *, now: float) -> bool:
    return any(
        silence.covers(alert, run=context.run.key, owner=context.run.owner, now=now) for silence in context.silences
    )


def alert_mute_reason(alert: Alert, context: DeliveryContext, *, now: float) -> MuteReason | None:
    """Return why all notifications of a firing alert are muted, or None: a silence or an inhibition."""
    if _is_silenced(alert, context, now=now):
        return MuteReason.SILENCED
    return MuteReason.INHIBITED if inhibiting_alert(alert, context.firing) is not None else None
