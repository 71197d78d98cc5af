"""Alerts of rules over the state of a run, and the deliveries of their transitions."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.domain.alerts.alert_builders import ALERT, transition_to
from tests.domain.pipeline.closings import parse_rules, pass_context
from trmon.domain.alerts.alert import AlertState, AlertTrack, Transition, TransitionReason, end_alert
from trmon.domain.identity import BatchKey
from trmon.domain.pipeline.publish import transition_deliveries
from trmon.domain.pipeline.state import PipelineState
from trmon.domain.pipeline.transition import apply_run_end, apply_state_change, retire_removed_rules
from trmon.domain.rules.rule_yaml import builtin_rules
from trmon.domain.runs.liveness import StateChange, StateChangeReason
from trmon.domain.runs.run import RunState
from trmon.domain.severity import Severity

KEY = BatchKey(1, 7, None)


def change(state: RunState) -> StateChange:
    """Return a change of state at second 500, silent since second 100."""
    return StateChange(
        state=state,
        reason=StateChangeReason.SILENT,
        at=500.0,
        silence_started_at=100.0,
        silent_seconds=400.0,
        limit_seconds=120.0,
    )


def transitions_of(*states: RunState, steps: int = 50) -> tuple[list[Transition], PipelineState]:
    """Return the transitions of a run that passes through these states, and its pipeline state."""
    pipeline_state, made = PipelineState(steps=steps), []
    for state in states:
        transitions, pipeline_state = apply_state_change(
            change(state), context=pass_context(), pipeline_state=pipeline_state, key=KEY
        )
        made += transitions
    return made, pipeline_state


@pytest.mark.parametrize(
    ("states", "expected"),
    [
        pytest.param([RunState.STALLED], ["stalled firing"], id="a stall"),
        pytest.param([RunState.STALLED, RunState.RUNNING], ["stalled firing", "stalled resolved"], id="and its end"),
        pytest.param(
            [RunState.STALLED, RunState.CRASHED],
            ["stalled firing", "stalled resolved", "crashed firing"],
            id="a stall that was a crash",
        ),
        pytest.param([RunState.PAUSED, RunState.RUNNING], [], id="a pause has no alert"),
        pytest.param([RunState.STALLED, RunState.FINISHED], ["stalled firing"], id="an end resolves nothing yet"),
    ],
)
def test_states_raise_and_resolve_alerts_without_delay(states: list[RunState], expected: list[str]) -> None:
    made, _ = transitions_of(*states)
    assert [f"{t.alert.rule} {t.alert.state.value}" for t in made if t.alert] == expected
    began = {AlertState.FIRING: 100.0, AlertState.RESOLVED: 500.0}
    assert all(t.event and t.event.silence_started_at == began[t.event.state] for t in made)


@pytest.mark.parametrize("state", [RunState.STALLED, RunState.CRASHED])
def test_a_stall_and_a_crash_page_in_the_first_steps_too(state: RunState) -> None:
    made, _ = transitions_of(state, steps=1)
    assert [t.alert.severity for t in made if t.alert] == [Severity.PAGE]


@pytest.mark.parametrize(("steps", "severity"), [(19, Severity.WARN), (20, Severity.PAGE)])
def test_a_page_over_the_state_is_a_warning_in_its_immune_steps(steps: int, severity: Severity) -> None:
    immune = replace(builtin_rules().by_name["stalled"], immune_steps=20)
    made, _ = apply_state_change(
        change(RunState.STALLED),
        context=pass_context(rules=replace(builtin_rules(), others=(immune,))),
        pipeline_state=PipelineState(steps=steps),
        key=KEY,
    )
    assert [t.alert.severity for t in made if t.alert] == [severity]


def test_the_end_of_a_finished_run_ends_its_alerts() -> None:
    _, pipeline_state = transitions_of(RunState.STALLED)
    made, pipeline_state = apply_run_end(
        context=pass_context(run={"state": RunState.FINISHED}), pipeline_state=pipeline_state, now=600.0
    )
    assert [(t.reason, t.alert.state) for t in made if t.alert] == [(TransitionReason.FINISHED, AlertState.RESOLVED)]
    assert not pipeline_state.tracks


def test_a_crashed_run_keeps_its_alerts() -> None:
    _, pipeline_state = transitions_of(RunState.CRASHED)
    made, after = apply_run_end(
        context=pass_context(run={"state": RunState.CRASHED}), pipeline_state=pipeline_state, now=600.0
    )
    assert made == ()
    assert after.open_alerts() == pipeline_state.open_alerts()


def test_an_alert_without_its_rule_is_retired() -> None:
    _, pipeline_state = transitions_of(RunState.STALLED)
    made, after = retire_removed_rules(
        context=pass_context(rules=parse_rules("[]")), pipeline_state=pipeline_state, now=600.0
    )
    assert [t.reason for t in made] == [TransitionReason.RETIRED]
    assert not after.tracks
    assert retire_removed_rules(context=pass_context(), pipeline_state=pipeline_state, now=600.0) == (
        (),
        pipeline_state,
    )


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
