"""Deliveries of a transition: one for each receiver, with a key that prevents duplicates."""

from __future__ import annotations

from collections.abc import Iterable

from trmon.domain.alerts.alert import AlertEvent, AlertState
from trmon.domain.alerts.delivery import Delivery
from trmon.domain.alerts.notification import build_notification
from trmon.domain.alerts.transitions import Transition
from trmon.domain.context.pass_context import PassContext
from trmon.domain.model.finding import Severity
from trmon.domain.runs.run import RunState


def transition_deliveries(transition: Transition, context: PassContext) -> tuple[Delivery, ...]:
    """Return one delivery per receiver if a page or a warning has fired or resolved.

    Alerts of health are told by the incident that they join. On a finished run only resolved alerts are delivered, also
    for batches that close after its end.
    """
    alert, event = transition.alert, transition.event
    if alert is None or event is None or alert.severity is Severity.INFO:
        return ()
    rule = context.rule(alert.rule)
    if rule is not None and rule.is_of_health:
        return ()
    if context.run.state is RunState.FINISHED and event.state is AlertState.FIRING:
        return ()
    return deliveries_of(transition, context)


def deliveries_of(transition: Transition, context: PassContext) -> tuple[Delivery, ...]:
    """Return one delivery of a transition with an event per receiver."""
    alert, event = transition.alert, transition.event
    assert alert is not None
    assert event is not None
    notification = build_notification(
        alert, event, reason=transition.reason, run=context.run, public_url=context.public_url
    )
    return tuple(
        Delivery(
            id=0,
            receiver=receiver,
            dedup_key=_dedup_key(event, receiver=receiver),
            notification=notification,
            due_at=context.now,
            made_at=context.now,
            run_id=alert.run_id,
            episode=alert.episode,
            told_state=event.state,
        )
        for receiver in _receivers(event, context)
    )


def _receivers(event: AlertEvent, context: PassContext) -> Iterable[str]:
    """Resolved alerts go to all receivers, because the owner may have changed; muting drops those never notified."""
    if event.state is AlertState.FIRING:
        return context.receivers
    return dict.fromkeys((*context.receivers, *context.all_receivers))


def _dedup_key(event: AlertEvent, *, receiver: str) -> str:
    if event.silence_started_at is not None:
        place = f"silence-{event.silence_started_at:.3f}"
    else:
        place = f"{event.step}" if event.update is None else f"{event.step}.{event.update}"
    return f"{receiver}:{event.identity}:{event.attempt_id}:{place}:{event.state.value}"
