"""The deliveries of a transition: their receivers, their keys, and transitions without any."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.domain.alerts.alert_builders import ALERT, transition_to
from tests.domain.pipeline.closings import pass_context
from trmon.domain.alerts.alert import AlertState
from trmon.domain.alerts.transitions import AlertTrack, Transition, TransitionReason, end_alert
from trmon.domain.pipeline.publish import transition_deliveries
from trmon.domain.runs.run import RunState
from trmon.domain.severity import Severity


def test_each_receiver_has_its_own_delivery() -> None:
    deliveries = transition_deliveries(transition_to(), pass_context(receivers=("hook", "slack")))
    assert [delivery.receiver for delivery in deliveries] == ["hook", "slack"]
    assert [delivery.dedup_key for delivery in deliveries] == ["hook:1/high:3:7:firing", "slack:1/high:3:7:firing"]


@pytest.mark.parametrize(
    ("transition", "key"),
    [
        pytest.param(transition_to(replace(ALERT, update=2)), "hook:1/high:3:7.2:firing", id="an update"),
        pytest.param(
            transition_to(silence_started_at=99.5), "hook:1/high:3:silence-99.500:firing", id="a silent trainer"
        ),
    ],
)
def test_the_dedup_key_names_the_place_of_the_transition(transition: Transition, key: str) -> None:
    (delivery,) = transition_deliveries(transition, pass_context())
    assert delivery.dedup_key == key


@pytest.mark.parametrize(
    ("transition", "state"),
    [
        pytest.param(transition_to(replace(ALERT, severity=Severity.INFO)), RunState.RUNNING, id="severity info"),
        pytest.param(transition_to(), RunState.FINISHED, id="a firing alert of a finished run"),
        pytest.param(
            Transition(track=AlertTrack(), reason=TransitionReason.QUIET), RunState.RUNNING, id="no transition"
        ),
    ],
)
def test_some_transitions_have_no_deliveries(transition: Transition, state: RunState) -> None:
    assert transition_deliveries(transition, pass_context(run={"state": state})) == ()


def test_a_resolved_alert_of_a_finished_run_is_delivered() -> None:
    resolved = end_alert(AlertTrack(alert=ALERT), reason=TransitionReason.FINISHED, now=30.0)
    (delivery,) = transition_deliveries(resolved, pass_context(run={"state": RunState.FINISHED}))
    assert (delivery.told_state, delivery.episode) == (AlertState.RESOLVED, ALERT.episode)
    assert delivery.notification.reason == "the run has finished"
