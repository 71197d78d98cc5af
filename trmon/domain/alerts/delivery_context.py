"""The state of a run when one of its deliveries is due."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from trmon.domain.alerts.alert import Alert, AlertEvent, AlertState
from trmon.domain.alerts.delivery import Delivery
from trmon.domain.alerts.flapping import FlapState, flap_state
from trmon.domain.alerts.silences import Silence
from trmon.domain.runs.run import Run, RunState


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryContext:
    """The run of a delivery, its alerts, and what its receivers already know.

    `alerts`: those that fire and those that ended within the last minute; `acked`: the acknowledged episodes; `tried`:
    when the firing notification of each (receiver, episode) was attempted, which may have arrived; `waiting`: those
    whose firing notification is still due; `events`: the newest transitions of the run.
    """

    run: Run
    alerts: tuple[Alert, ...]
    tried: Mapping[tuple[str, str], float]
    waiting: frozenset[tuple[str, str]] = frozenset()
    acked: frozenset[str] = frozenset()
    silences: tuple[Silence, ...] = ()
    events: tuple[AlertEvent, ...] = ()

    @property
    def firing(self) -> tuple[Alert, ...]:
        """The alerts that fire."""
        return tuple(alert for alert in self.alerts if alert.state is AlertState.FIRING)

    def alert_of(self, delivery: Delivery) -> Alert | None:
        """Return the alert of a delivery; None if its episode ended, also if a new one started at the same step."""
        since_at = delivery.notification.alert.since_at
        return next((a for a in self.alerts if a.episode == delivery.episode and a.since_at == since_at), None)

    def is_superseded(self, delivery: Delivery) -> bool:
        """Return whether the incident of a delivery has been told of anew since."""
        alert = delivery.notification.alert
        return alert.is_incident and any(
            event.identity == alert.identity and event.state is AlertState.FIRING and event.at > alert.at
            for event in self.events
        )

    def ends_ill(self, delivery: Delivery) -> bool:
        """Return whether the run of an incident has finished before its receiver was told of it."""
        subject = (delivery.receiver, delivery.episode or "")
        return self._has_finished_with(delivery) and subject not in self.tried

    def was_told_after_end(self, delivery: Delivery) -> bool:
        """Return whether the receiver of an incident's end was told of it only once the run had finished."""
        told_at = self.tried.get((delivery.receiver, delivery.episode or ""), math.inf)
        return self._has_finished_with(delivery) and told_at > delivery.made_at

    def _has_finished_with(self, delivery: Delivery) -> bool:
        return delivery.notification.alert.is_incident and self.run.state is RunState.FINISHED

    def flap_state_of(self, delivery: Delivery) -> FlapState:
        """Return whether the alert flaps at the transition of a delivery; an incident is damped and never does."""
        notification = delivery.notification
        if notification.alert.is_incident:
            return FlapState.STABLE
        place = (notification.alert.identity, notification.run.attempt_id)
        step = notification.step
        steps = (event.step for event in self.events if (event.identity, event.attempt_id) == place)
        return flap_state(steps, at_step=step, now_step=max(self.run.last_step or 0, step))
