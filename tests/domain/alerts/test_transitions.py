"""The transitions of an alert over a series of findings."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from trmon.domain.alerts.alert import AlertState
from trmon.domain.alerts.transitions import AlertTrack, Transition, TransitionReason, advance_alert, end_alert
from trmon.domain.identity import BatchKey
from trmon.domain.rules.condition import Comparison, ThresholdSide
from trmon.domain.rules.rule import Rule, RuleFinding
from trmon.domain.rules.signal_reader import SignalReader
from trmon.domain.severity import Severity

RULE = Rule(
    name="high",
    when=Comparison(signal="x", bound=ThresholdSide.ABOVE, threshold=10.0, clear=5.0),
    severity=Severity.PAGE,
    summary="{signal} is {value} (limit {threshold})",
    for_steps=3,
    clear_for_steps=2,
    immune_steps=2,
)


def transitions_of(values: list[float], *, rule: Rule = RULE, seconds: float = 10.0) -> list[Transition]:
    """Return the transitions of a rule, one per step, for the values of its signal."""
    track, transitions = AlertTrack(), []
    for step, value in enumerate(values, start=1):
        reader = SignalReader({"x": value}, "total")
        finding = RuleFinding(
            rule=rule.name,
            key=BatchKey(1, step, None),
            at=seconds * step,
            steps=step,
            mode="observe",
            raised=rule.condition.evaluate(reader).raised,
            lingering=rule.condition.evaluate(reader).lingering,
        )
        transition = advance_alert(track, finding, rule=rule, run_id=1, run="math/grpo")
        track = transition.track
        transitions.append(transition)
    return transitions


def reasons_of(transitions: list[Transition]) -> str:
    return " ".join(transition.reason.name.lower() for transition in transitions)


N = math.nan
STEPS = [
    ("the first steps are immune", [20, 20, 0, 0], "immune immune quiet quiet"),
    ("it fires after three steps beyond them", [20] * 6, "immune immune began waiting fired firing"),
    ("what clears before it fires is dropped", [0, 0, 20, 20, 0, 20], "immune immune began waiting dropped began"),
    (
        "steps of unknown truth are skipped",
        *([0, 0, 20, N, 20, N, 20], "immune immune began unknown waiting unknown fired"),
    ),
    (
        "it resolves after two clear steps",
        *([0, 0, 20, 20, 20, 0, 0, 0], "immune immune began waiting fired clearing resolved quiet"),
    ),
    (
        "above the clear threshold it still fires",
        *([0, 0, 20, 20, 20, 7, 7, 7], "immune immune began waiting fired firing firing firing"),
    ),
    (
        "clear steps must be in a row",
        *([0, 0, 20, 20, 20, 0, 7, 0, 0], "immune immune began waiting fired clearing firing clearing resolved"),
    ),
    (
        "a missing signal is not clear",
        *([0, 0, 20, 20, 20, 0, N, N, 0], "immune immune began waiting fired clearing unknown unknown resolved"),
    ),
    ("without signals nothing happens", [N, N, N], "unknown unknown unknown"),
    ("an infinite value", [0, 0, math.inf, math.inf, math.inf], "immune immune began waiting fired"),
]


@pytest.mark.parametrize(("sentence", "values", "reasons"), STEPS, ids=[case[0] for case in STEPS])
def test_each_step_has_a_reason(sentence: str, values: list[float], reasons: str) -> None:
    assert reasons_of(transitions_of(values)) == reasons


def test_only_firing_and_resolving_are_events() -> None:
    transitions = transitions_of([0, 0, 20, 20, 20, 20, 0, 0])
    events = [(t.event.state, t.event.step) for t in transitions if t.event]
    assert events == [(AlertState.FIRING, 5), (AlertState.RESOLVED, 8)]


def test_an_alert_keeps_its_first_step_and_has_the_newest_value() -> None:
    alert = transitions_of([0, 0, 20, 30, 40])[-1].alert
    assert (alert.state, alert.step, alert.since_at, alert.updated_at) == (AlertState.FIRING, 3, 30.0, 50.0)
    assert (alert.value, alert.threshold, alert.summary) == (40.0, 10.0, "x is 40 (limit 10)")


def test_for_seconds_must_have_passed_too() -> None:
    rule = replace(RULE, for_seconds=35.0, immune_steps=0)
    assert reasons_of(transitions_of([20] * 6, rule=rule)) == "began waiting waiting waiting fired firing"


def test_a_rule_without_for_fires_at_once() -> None:
    rule = replace(RULE, for_steps=1, immune_steps=0)
    assert reasons_of(transitions_of([20, 20], rule=rule)) == "fired firing"


@pytest.mark.parametrize(
    ("values", "state", "has_event"),
    [
        pytest.param([0, 0, 20], AlertState.DROPPED, False, id="a pending alert is dropped"),
        pytest.param([0, 0, 20, 20, 20], AlertState.RESOLVED, True, id="a firing alert is resolved"),
        pytest.param([0, 0, 0], None, False, id="a quiet rule stays quiet"),
    ],
)
def test_an_alert_can_end_without_a_step(values: list[float], state: AlertState | None, has_event: bool) -> None:
    transition = end_alert(transitions_of(values)[-1].track, reason=TransitionReason.FINISHED, now=99.0)
    assert (transition.alert.state if transition.alert else None) is state
    assert (transition.event is not None) is has_event
    assert transition.track == AlertTrack()
