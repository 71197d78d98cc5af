"""Whom a run that changes hands is told to."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.domain.alerts.test_deliveries import ALERT
from tests.domain.stages.closings import pass_context
from trmon.domain.alerts.alert import AlertState
from trmon.domain.alerts.owner_change import OwnerChange
from trmon.domain.alerts.routing import Routes
from trmon.domain.model.severity import Severity

ROUTES = Routes(receivers=("hook", "slack", "pager"), by_owner={"ana": ("slack",), "bo": ("slack", "pager"), "cy": ()})
HANDOVER = OwnerChange(routes=ROUTES, public_url=None, now=500.0)


@pytest.mark.parametrize(
    ("before", "after", "receivers"),
    [
        ("ana", "bo", ["pager"]),
        ("bo", "ana", []),
        ("ana", "ana", []),
        ("cy", "bo", ["slack", "pager"]),
        ("bo", "cy", []),
        (None, "bo", []),
        ("bo", "somebody", ["hook"]),
    ],
)
def test_only_those_that_the_former_owner_did_not_have_hear_of_it(
    before: str | None, after: str, receivers: list[str]
) -> None:
    run = pass_context().run
    made = HANDOVER.deliveries([ALERT], before=replace(run, owner=before), after=replace(run, owner=after))
    assert [delivery.receiver for delivery in made] == receivers
    assert {delivery.body["run"]["owner"] for delivery in made} <= {after}
    assert {(delivery.episode, delivery.told_state) for delivery in made} <= {(ALERT.episode, AlertState.FIRING)}


def test_what_does_not_fire_or_only_informs_is_not_told() -> None:
    run = pass_context().run
    quiet = [replace(ALERT, state=AlertState.PENDING), replace(ALERT, severity=Severity.INFO)]
    assert HANDOVER.deliveries(quiet, before=replace(run, owner="ana"), after=replace(run, owner="bo")) == ()
