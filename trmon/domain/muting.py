"""Whether a delivery is told when its time has come, or why not; alerts are recorded and shown all the same."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from trmon.domain.alerts import Alert, AlertState, Delivery
from trmon.domain.runs import Run

LATE_SECONDS = 60.0
"""How long after an alert fired that is told even if it has ended since."""


class Mute(Enum):
    """Why nobody is told."""

    ENDED = "the alert ended before it could be told"
    UNTOLD = "nobody was told that the alert fired"


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """What is true of a run when one of its deliveries is due.

    `firing`: its firing alerts; `tried`: (receiver, episode) of those whose firing a receiver may have heard of.
    """

    run: Run
    firing: tuple[Alert, ...]
    tried: frozenset[tuple[str, str]]

    def alert(self, episode: str | None) -> Alert | None:
        """Return the firing alert of an episode; None once it has ended."""
        return next((alert for alert in self.firing if alert.episode == episode), None)


def muted(delivery: Delivery, situation: Situation, *, now: float) -> Mute | None:
    """Return why a delivery is not told, or None.

    That an alert fires is told late only while it does: after an outage nobody is woken for what is over. That it has
    resolved is told to whoever may have heard that it fired, since a failed try may have arrived.
    """
    if delivery.told_state is AlertState.RESOLVED:
        return None if (delivery.receiver, delivery.episode) in situation.tried else Mute.UNTOLD
    late = now - delivery.made_at > LATE_SECONDS or delivery.rounds > 0
    return Mute.ENDED if late and situation.alert(delivery.episode) is None else None
