"""Deliveries when a run changes its owner or its name, or is deleted."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from msgspec import structs

from trmon.domain.alerts.alert import Alert, AlertState
from trmon.domain.alerts.delivery import Delivery, Routes
from trmon.domain.alerts.notification import build_notification
from trmon.domain.alerts.transitions import TransitionReason, transition_event
from trmon.domain.runs.run import Run
from trmon.domain.severity import Severity


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnerChange:
    """The routes, the service's public URL, and the time at which a run gets another owner.

    `health_rules` are the rules whose alerts the run's incident replaces.
    """

    routes: Routes
    public_url: str | None
    now: float
    health_rules: frozenset[str] = frozenset()

    def deliveries(self, alerts: Iterable[Alert], *, before: Run, after: Run) -> tuple[Delivery, ...]:
        """Return deliveries of the firing alerts to the receivers that only the new owner has.

        Receivers that only the former owner had get no more reminders, but still get the resolve notification of an
        alert that they were notified of.
        """
        former = self.routes.of(before.owner)
        added = [receiver for receiver in self.routes.of(after.owner) if receiver not in former]
        told = (alert for alert in alerts if alert.rule not in self.health_rules)
        firing = [a for a in told if a.state is AlertState.FIRING and a.severity is not Severity.INFO]
        reason = TransitionReason.HANDED_OVER
        return tuple(
            Delivery(
                id=0,
                receiver=receiver,
                dedup_key=f"{receiver}:{alert.episode}:{after.owner}:{alert.state.value}",
                notification=build_notification(
                    alert, transition_event(alert), reason=reason, run=after, public_url=self.public_url
                ),
                due_at=self.now,
                made_at=self.now,
                run_id=alert.run_id,
                episode=alert.episode,
                told_state=alert.state,
            )
            for alert in firing
            for receiver in added
        )


def closing_delivery(fired: Delivery, *, reason: TransitionReason, now: float) -> Delivery:
    """Return the delivery that resolves an alert for the receiver of `fired`, under the run's name in it.

    It has no run, so that it outlives the run's rows, and keeps its episode, so that it is sent after `fired`.
    Args: reason: DELETED or RENAMED.
    """
    cause = f"{reason.name.lower()}:{fired.notification.run.run}"
    return Delivery(
        id=0,
        receiver=fired.receiver,
        dedup_key=f"{fired.receiver}:{fired.episode}:{cause}:{AlertState.RESOLVED.value}",
        notification=structs.replace(
            fired.notification,
            status=AlertState.RESOLVED,
            reason=reason.value,
            alert=structs.replace(fired.notification.alert, at=now),
            url=None,
        ),
        due_at=now,
        made_at=now,
        episode=fired.episode,
        told_state=AlertState.RESOLVED,
    )
