"""Handover: a run with alerts that fire has another owner now, and other receivers hear of it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from trmon.domain.alerts.alert import Alert, AlertState, Delivery
from trmon.domain.alerts.deliveries import notification_body
from trmon.domain.alerts.routing import Routes
from trmon.domain.alerts.transitions import TransitionReason, transition_event
from trmon.domain.model.severity import Severity
from trmon.domain.runs.run import Run


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnerChange:
    """Who hears of whose runs, and when a run is handed over."""

    routes: Routes
    public_url: str | None
    now: float

    def deliveries(self, alerts: Iterable[Alert], *, before: Run, after: Run) -> tuple[Delivery, ...]:
        """Return what tells receivers that only the new owner has of the alerts that fire.

        Those that only the former owner had hear no more of what fires, and that it has resolved if they heard of it.
        """
        known = self.routes.of(before.owner)
        new = [receiver for receiver in self.routes.of(after.owner) if receiver not in known]
        firing = [a for a in alerts if a.state is AlertState.FIRING and a.severity is not Severity.INFO]
        return tuple(self._delivery(alert, receiver, run=after) for alert in firing for receiver in new)

    def _delivery(self, alert: Alert, receiver: str, *, run: Run) -> Delivery:
        event = transition_event(alert)
        return Delivery(
            id=0,
            receiver=receiver,
            dedup_key=f"{receiver}:{alert.episode}:{run.owner}:{alert.state.value}",
            body=notification_body(
                alert, event, reason=TransitionReason.HANDED_OVER, run=run, public_url=self.public_url
            ),
            due_at=self.now,
            made_at=self.now,
            run_id=alert.run_id,
            episode=alert.episode,
            told_state=alert.state,
        )
