"""The test notification: a sample alert that shows whether a receiver works."""

from __future__ import annotations

from msgspec import structs

from trmon.domain.alerts.alert import Alert, AlertState
from trmon.domain.alerts.notification import Notification, build_notification
from trmon.domain.alerts.transitions import TransitionReason, transition_event
from trmon.domain.model.identity import RunKey
from trmon.domain.model.severity import Severity
from trmon.domain.runs.run import Run, RunState

RULE = "notify_test"
RUN = RunKey("trmon", "notify-test")
REASONS = {AlertState.FIRING: TransitionReason.FIRED, AlertState.RESOLVED: TransitionReason.RESOLVED}


def sample_notification(state: AlertState, *, receiver: str, public_url: str | None, now: float) -> Notification:
    """Return a notification that a test alert fires, or has resolved."""
    alert = _sample_alert(state, now=now)
    notification = build_notification(
        alert, transition_event(alert), reason=REASONS[state], run=_sample_run(now=now), public_url=public_url
    )
    return structs.replace(notification, key=f"{receiver}:{RULE}:{now:.3f}:{state.value}")


def _sample_alert(state: AlertState, *, now: float) -> Alert:
    return Alert(
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


def _sample_run(*, now: float) -> Run:
    return Run(
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
