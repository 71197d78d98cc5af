"""Whether a delivery is told when its time has come, or why not; alerts are recorded and shown all the same."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from trmon.domain.alerts import Alert, AlertEvent, AlertState, Delivery
from trmon.domain.flapping import Flap, flap
from trmon.domain.inhibition import cause_of
from trmon.domain.runs import Run
from trmon.domain.silences import Silence

LATE_SECONDS = 60.0
"""How long after an alert fired that is told even if it has ended since."""


class Mute(Enum):
    """Why nobody is told."""

    ENDED = "the alert ended before it could be told"
    UNTOLD = "nobody was told that the alert fired"
    ACKED = "somebody has acknowledged the alert"
    SILENCED = "a silence covers the alert"
    INHIBITED = "a cause of the alert fires on the same run"
    FLAPPING = "the alert flaps, and that was said"

    @property
    def may_lift(self) -> bool:
        """Whether the delivery is told after all if the alert still fires when the reason is gone."""
        return self in (Mute.SILENCED, Mute.INHIBITED, Mute.FLAPPING)


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """What is true of a run when one of its deliveries is due.

    `firing`: its firing alerts; `acked`: the episodes that somebody has acknowledged; `tried`: (receiver, episode) of
    those whose firing a receiver may have heard of; `events`: its newest transitions.
    """

    run: Run
    firing: tuple[Alert, ...]
    tried: frozenset[tuple[str, str]]
    acked: frozenset[str] = frozenset()
    silences: tuple[Silence, ...] = ()
    events: tuple[AlertEvent, ...] = ()

    def alert(self, episode: str | None) -> Alert | None:
        """Return the firing alert of an episode; None once it has ended."""
        return next((alert for alert in self.firing if alert.episode == episode), None)

    def flap(self, delivery: Delivery) -> Flap:
        """Return whether the alert flaps at the transition that a delivery tells of."""
        place = delivery.place
        if place is None:
            return Flap.CALM
        of_alert = (e.step for e in self.events if (e.identity, e.attempt_id) == (place.identity, place.attempt_id))
        return flap(of_alert, at_step=place.step, now_step=max(self.run.last_step or 0, place.step))


def muted(delivery: Delivery, situation: Situation, *, now: float, forgets: bool = False) -> Mute | None:
    """Return why a delivery is not told, or None.

    That an alert fires is told late only while it does: after an outage nobody is woken for what is over. That it has
    resolved is told to whoever may have heard that it fired, since a failed try may have arrived.
    Args: forgets: the receiver drops what it does not hear of again, so it does whoever has acknowledged it.
    """
    if delivery.told_state is AlertState.RESOLVED:
        return None if (delivery.receiver, delivery.episode) in situation.tried else Mute.UNTOLD
    alert = situation.alert(delivery.episode)
    if alert is None:
        late = now - delivery.made_at > LATE_SECONDS or delivery.rounds > 0
        return Mute.ENDED if late else None
    if alert.episode in situation.acked and not forgets:
        return Mute.ACKED
    if not delivery.rounds and situation.flap(delivery) is Flap.GOES_ON:
        return Mute.FLAPPING
    return muted_alert(alert, situation, now=now)


def muted_alert(alert: Alert, situation: Situation, *, now: float) -> Mute | None:
    """Return why nobody is told of a firing alert, as far as that does not hang on the delivery."""
    if any(silence.covers(alert, run=situation.run, now=now) for silence in situation.silences):
        return Mute.SILENCED
    return Mute.INHIBITED if cause_of(alert, situation.firing) is not None else None
