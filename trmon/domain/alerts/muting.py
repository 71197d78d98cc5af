"""Whether a delivery is told when its time has come, or why not; alerts are recorded and shown all the same."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from trmon.domain.alerts.alert import Alert, AlertEvent, AlertState, Delivery, DeliveryState
from trmon.domain.alerts.flapping import FlapState, flap_state
from trmon.domain.alerts.inhibition import inhibiting_alert
from trmon.domain.alerts.silences import Silence
from trmon.domain.runs.run import Run, RunState

LATE_SECONDS = 60.0
"""How long after an alert fired that is told even if it has ended since."""
HELD_SECONDS = 15.0
"""How often it is looked whether what was muted may be told."""
ORDER_SECONDS = 1.0
"""How often it is looked whether the first of two deliveries is settled."""


class MuteReason(Enum):
    """Why nobody is told."""

    ENDED = "the alert ended before it could be told"
    FINISHED = "the run has finished"
    UNTOLD = "nobody was told that the alert fired"
    ACKED = "somebody has acknowledged the alert"
    SILENCED = "a silence covers the alert"
    INHIBITED = "a cause of the alert fires on the same run"
    FLAPPING = "the alert flaps, and that was said"
    REROUTED = "the run has another owner now"
    EARLY = "that the alert fired is still being told"

    @property
    def looked_again_after_seconds(self) -> float | None:
        """When it is looked whether the reason is gone, and the delivery told after all; None where it is final."""
        if self is MuteReason.EARLY:
            return ORDER_SECONDS
        return HELD_SECONDS if self in (MuteReason.SILENCED, MuteReason.INHIBITED, MuteReason.FLAPPING) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryContext:
    """What is true of a run when one of its deliveries is due.

    `alerts`: those that fire and those that ended within the last minute; `acked`: the episodes that somebody has
    acknowledged; `tried`: (receiver, episode) of those whose firing a receiver may have heard of, `waiting`: of those
    whose firing is being told; `events`: its newest transitions.
    """

    run: Run
    alerts: tuple[Alert, ...]
    tried: frozenset[tuple[str, str]]
    waiting: frozenset[tuple[str, str]] = frozenset()
    acked: frozenset[str] = frozenset()
    silences: tuple[Silence, ...] = ()
    events: tuple[AlertEvent, ...] = ()

    @property
    def firing(self) -> tuple[Alert, ...]:
        """The alerts that fire."""
        return tuple(alert for alert in self.alerts if alert.state is AlertState.FIRING)

    def alert(self, episode: str | None) -> Alert | None:
        """Return the alert of an episode; None once it has ended long ago."""
        return next((alert for alert in self.alerts if alert.episode == episode), None)

    def alert_of(self, delivery: Delivery) -> Alert | None:
        """Return the alert that a delivery tells of; None also where it has ended and fires again at the same step."""
        alert, told = self.alert(delivery.episode), delivery.body.get("alert")
        if alert is None or not isinstance(told, dict):
            return alert
        return alert if told.get("since_at", alert.since_at) == alert.since_at else None

    def flap(self, delivery: Delivery) -> FlapState:
        """Return whether the alert flaps at the transition that a delivery tells of."""
        place = delivery.place
        if place is None:
            return FlapState.CALM
        of_alert = (e.step for e in self.events if (e.identity, e.attempt_id) == (place.identity, place.attempt_id))
        return flap_state(of_alert, at_step=place.step, now_step=max(self.run.last_step or 0, place.step))


def mute_reason(
    delivery: Delivery, delivery_context: DeliveryContext, *, now: float, forgets: bool = False, is_routed: bool = True
) -> MuteReason | None:
    """Return why a delivery is not told, or None.

    That an alert fires is told late only while it does: after an outage nobody is woken for what is over, nor for what
    ended while it was muted. That it has resolved is told after that, to whoever may have heard of it, since a failed
    try may have arrived.
    Args: forgets: the receiver drops what it does not hear of again, so it does whoever has acknowledged it;
    is_routed: the receiver is one of the run's owner.
    """
    if delivery.told_state is AlertState.RESOLVED:
        return _muted_end(delivery, delivery_context)
    if delivery_context.run.state is RunState.FINISHED:
        return MuteReason.FINISHED
    if not is_routed:
        return MuteReason.REROUTED
    alert = delivery_context.alert_of(delivery)
    if alert is None:
        return MuteReason.ENDED
    if alert.state is not AlertState.FIRING and _comes_late(delivery, now=now):
        return MuteReason.ENDED
    if alert.episode in delivery_context.acked and not forgets:
        return MuteReason.ACKED
    if not delivery.rounds and delivery_context.flap(delivery) is FlapState.GOES_ON:
        return MuteReason.FLAPPING
    return mute_reason_of_alert(alert, delivery_context, now=now)


def _comes_late(delivery: Delivery, *, now: float) -> bool:
    """Whether that an alert fires is news no more once it has ended."""
    was_muted = delivery.state is DeliveryState.HELD
    return was_muted or delivery.rounds > 0 or now - delivery.made_at > LATE_SECONDS


def _muted_end(delivery: Delivery, delivery_context: DeliveryContext) -> MuteReason | None:
    heard = (delivery.receiver, delivery.episode)
    if heard in delivery_context.waiting:
        return MuteReason.EARLY
    return None if heard in delivery_context.tried else MuteReason.UNTOLD


def mute_reason_of_alert(alert: Alert, delivery_context: DeliveryContext, *, now: float) -> MuteReason | None:
    """Return why nobody is told of a firing alert, as far as that does not hang on the delivery."""
    if any(silence.covers(alert, run=delivery_context.run, now=now) for silence in delivery_context.silences):
        return MuteReason.SILENCED
    return MuteReason.INHIBITED if inhibiting_alert(alert, delivery_context.firing) is not None else None
