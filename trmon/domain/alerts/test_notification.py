"""A trial: an alert that nothing is wrong with, to see whether its receivers hear it."""

from __future__ import annotations

from trmon.domain.alerts.alert import Alert, AlertState, Delivery
from trmon.domain.alerts.deliveries import notification_body
from trmon.domain.alerts.transitions import TransitionReason, transition_event
from trmon.domain.model.identity import RunKey
from trmon.domain.model.severity import Severity
from trmon.domain.runs.run import Run, RunState

RULE = "notify_test"
RUN = RunKey("trmon", "notify-test")
REASONS = {AlertState.FIRING: TransitionReason.FIRED, AlertState.RESOLVED: TransitionReason.RESOLVED}


def sample_delivery(state: AlertState, *, receiver: str, public_url: str | None, now: float) -> Delivery:
    """Return a delivery that says that a test alert fires, or has resolved."""
    alert = Alert(
        identity=RULE,
        run_id=0,
        rule=RULE,
        severity=Severity.WARN,
        state=state,
        attempt_id=0,
        step=0,
        update=None,
        since_at=now,
        updated_at=now,
        value=1.0,
        threshold=0.0,
        summary="This is a test of trmon's notifications; nothing is wrong",
        labels={},
        runbook="Nothing to do.",
    )
    run = Run(
        id=0,
        key=RUN,
        state=RunState.RUNNING,
        owner=None,
        tags=(),
        config={},
        mode="observe",
        created_at=now,
        last_report_at=now,
        last_step=0,
        attempt_id=0,
    )
    body = notification_body(alert, transition_event(alert), reason=REASONS[state], run=run, public_url=public_url)
    return Delivery(id=0, receiver=receiver, dedup_key=f"{receiver}:{RULE}:{now:.3f}:{state.value}", body=body)
