"""What receivers are told."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest

from tests.domain.stages.closings import pass_context
from trmon.domain.alerts.alert import Alert, AlertState
from trmon.domain.alerts.deliveries import deliveries_of, group_message, jsonable
from trmon.domain.alerts.transitions import AlertTrack, Transition, TransitionReason, end_alert, transition_event
from trmon.domain.model.severity import Severity
from trmon.domain.runs.run import RunState

ALERT = Alert(
    identity="1/high",
    run_id=1,
    rule="high",
    severity=Severity.PAGE,
    state=AlertState.FIRING,
    attempt_id=3,
    step=7,
    update=None,
    since_at=10.0,
    updated_at=20.0,
    value=math.inf,
    threshold=1.0,
    summary="x is inf",
    labels={"team": "rl"},
    runbook="look",
)


def fired(alert: Alert = ALERT, *, silence_started_at: float | None = None) -> Transition:
    """Return a transition that receivers hear of."""
    event = transition_event(alert, silence_started_at=silence_started_at)
    return Transition(track=AlertTrack(alert=alert), reason=TransitionReason.FIRED, alert=alert, event=event)


def test_every_receiver_has_a_delivery_of_its_own() -> None:
    made = deliveries_of(fired(), pass_context(receivers=("hook", "slack")))
    assert [delivery.receiver for delivery in made] == ["hook", "slack"]
    assert [delivery.dedup_key for delivery in made] == ["hook:1/high:3:7:firing", "slack:1/high:3:7:firing"]


@pytest.mark.parametrize(
    ("transition", "key"),
    [
        pytest.param(fired(replace(ALERT, update=2)), "hook:1/high:3:7.2:firing", id="an update"),
        pytest.param(
            fired(silence_started_at=99.5), "hook:1/high:3:silence-99.500:firing", id="a silence, wherever it began"
        ),
    ],
)
def test_the_key_says_where_it_happened(transition: Transition, key: str) -> None:
    (delivery,) = deliveries_of(transition, pass_context())
    assert delivery.dedup_key == key


def test_the_body_is_json_and_says_what_where_and_what_to_do() -> None:
    (delivery,) = deliveries_of(fired(), pass_context(public_url="https://trmon.example/"))
    body = json.loads(json.dumps(delivery.body, allow_nan=False))
    assert (body["status"], body["reason"], body["value"], body["step"]) == (
        "firing",
        TransitionReason.FIRED.value,
        "inf",
        7,
    )
    assert body["alert"]["labels"] == {"team": "rl"}
    assert body["run"]["run"] == "grpo"
    assert body["url"] == "https://trmon.example/runs/math/grpo?step=7"


@pytest.mark.parametrize(
    ("transition", "state"),
    [
        pytest.param(fired(replace(ALERT, severity=Severity.INFO)), RunState.RUNNING, id="for information only"),
        pytest.param(fired(), RunState.FINISHED, id="a finished run pages nobody"),
        pytest.param(
            Transition(track=AlertTrack(), reason=TransitionReason.QUIET), RunState.RUNNING, id="nothing happened"
        ),
    ],
)
def test_some_transitions_are_told_to_nobody(transition: Transition, state: RunState) -> None:
    context = pass_context()
    assert deliveries_of(transition, replace(context, run=replace(context.run, state=state))) == ()


def test_that_an_alert_is_over_is_told_of_a_finished_run_too() -> None:
    over = end_alert(AlertTrack(alert=ALERT), reason=TransitionReason.FINISHED, now=30.0)
    context = pass_context()
    (delivery,) = deliveries_of(over, replace(context, run=replace(context.run, state=RunState.FINISHED)))
    assert (delivery.told_state, delivery.episode) == (AlertState.RESOLVED, ALERT.episode)
    assert delivery.body["reason"] == "the run has finished"


def test_a_message_tells_of_every_alert_and_of_the_run_once() -> None:
    (first,) = deliveries_of(fired(), pass_context())
    (second,) = deliveries_of(
        fired(replace(ALERT, identity="1/low", rule="low", state=AlertState.RESOLVED)), pass_context()
    )
    known = {"firing": [{"rule": "high"}], "flapping": None, "told_before": 2}
    message = group_message(
        [replace(first, body=first.body | known, rounds=2), replace(second, body=second.body | known)]
    )
    assert (message["version"], message["status"], message["firing"]) == (2, "firing", [{"rule": "high"}])
    assert message["run"] == {"project": "math", "run": "grpo", "owner": None, "tags": [], "mode": "observe"}
    told = [(alert["key"], alert["rule"], alert["status"], alert["attempt_id"]) for alert in message["alerts"]]
    assert told == [("hook:1/high:3:7:firing:2", "high", "firing", 3), (second.key, "low", "resolved", 3)]
    assert group_message([second])["status"] == "resolved"


def test_numbers_that_json_lacks_have_names() -> None:
    assert [jsonable(x) for x in (1.5, math.nan, math.inf, -math.inf)] == [1.5, None, "inf", "-inf"]
