"""Which receivers are notified when a run gets another owner."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.domain.alerts.alert_builders import ALERT, delivery_of
from tests.domain.pipeline.closings import pass_context
from trmon.domain.alerts.alert import AlertState
from trmon.domain.alerts.delivery import Routes
from trmon.domain.alerts.owner_change import OwnerChange, closing_delivery
from trmon.domain.alerts.transitions import TransitionReason
from trmon.domain.severity import Severity

ROUTES = Routes(receivers=("hook", "slack", "pager"), by_owner={"ana": ("slack",), "bo": ("slack", "pager"), "cy": ()})
OWNER_CHANGE = OwnerChange(routes=ROUTES, public_url=None, now=500.0)


@pytest.mark.parametrize(
    ("before", "after", "receivers"),
    [
        ("ana", "bo", ["pager"]),
        ("bo", "ana", []),
        ("ana", "ana", []),
        ("cy", "bo", ["slack", "pager"]),
        ("bo", "cy", []),
        (None, "bo", []),
        ("bo", "dan", ["hook"]),
    ],
)
def test_only_receivers_that_the_former_owner_did_not_have_are_notified(
    before: str | None, after: str, receivers: list[str]
) -> None:
    run = pass_context().run
    deliveries = OWNER_CHANGE.deliveries([ALERT], before=replace(run, owner=before), after=replace(run, owner=after))
    assert [delivery.receiver for delivery in deliveries] == receivers
    assert {delivery.notification.run.owner for delivery in deliveries} <= {after}
    assert {(delivery.episode, delivery.told_state) for delivery in deliveries} <= {(ALERT.episode, AlertState.FIRING)}


def test_pending_alerts_and_severity_info_are_not_delivered() -> None:
    run = pass_context().run
    quiet = [replace(ALERT, state=AlertState.PENDING), replace(ALERT, severity=Severity.INFO)]
    assert OWNER_CHANGE.deliveries(quiet, before=replace(run, owner="ana"), after=replace(run, owner="bo")) == ()


def test_it_resolves_the_alert_under_the_name_of_the_run_that_the_receiver_knows() -> None:
    fired = delivery_of()
    closing = closing_delivery(fired, reason=TransitionReason.DELETED, now=99.0)
    assert closing.dedup_key == f"hook:{ALERT.episode}:deleted:grpo:resolved"
    assert (closing.run_id, closing.episode, closing.told_state) == (None, ALERT.episode, AlertState.RESOLVED)
    told = closing.notification
    assert (told.status, told.reason, told.url) == (AlertState.RESOLVED, "the run was deleted", None)
    assert (told.alert.at, told.alert.since_at, told.run) == (99.0, ALERT.since_at, fired.notification.run)
