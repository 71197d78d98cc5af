"""The transitions of an alert over a series of findings, and silences: which alerts they mute, which are refused."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from tests.domain.alerts.alert_builders import ALERT
from tests.domain.memory_log import MemoryLog
from trmon.domain.alerts.alert import (
    AlertState,
    AlertTrack,
    FlapState,
    Transition,
    TransitionReason,
    advance_alert,
    end_alert,
    flap_state,
)
from trmon.domain.alerts.silences import Matcher, MatchOperator, Silence, check_matchers
from trmon.domain.errors import InvalidInput
from trmon.domain.identity import BatchKey
from trmon.domain.rules.condition import Comparison, SignalReader, ThresholdSide
from trmon.domain.rules.rule import Rule, RuleFinding
from trmon.domain.severity import Severity

RUN = replace(MemoryLog().stored_run, owner="ana")
"""The run math/grpo, owner ana; the alert is `high`, a page, label team=rl."""


def matcher(label: str, operator: str, value: str) -> Matcher:
    return Matcher(label=label, operator=MatchOperator(operator), value=value)


def silence(*matchers: Matcher, project: str | None = None) -> Silence:
    return Silence(id=1, project=project, matchers=matchers, author="ana", note="", starts_at=100.0, ends_at=200.0)


@pytest.mark.parametrize(
    ("matchers", "expected"),
    [
        pytest.param([("rule", "=", "high")], True, id="its rule"),
        pytest.param([("rule", "=", "low")], False, id="another rule"),
        pytest.param([("project", "=", "math"), ("run", "=", "grpo")], True, id="its run"),
        pytest.param([("run", "=", "grpo"), ("rule", "=", "low")], False, id="all must hold"),
        pytest.param([("severity", "=", "page"), ("owner", "=", "ana")], True, id="its severity and its run's owner"),
        pytest.param([("team", "=", "rl")], True, id="a label of its rule"),
        pytest.param([("rule", "!=", "low"), ("run", "=", "grpo")], True, id="a negative matcher"),
        pytest.param([("run", "~", "gr*")], True, id="a pattern"),
        pytest.param([("run", "~", "r*")], False, id="a pattern matches the whole value"),
        pytest.param([("run", "~", "g*"), ("rule", "!~", "h*")], False, id="a negative pattern"),
        pytest.param([("place", "=", "x")], False, id="a missing label"),
        pytest.param([("run", "=", "grpo"), ("place", "=", "")], True, id="a missing label is empty"),
    ],
)
def test_a_silence_covers_alerts_that_meet_all_matchers(matchers: list[tuple[str, str, str]], expected: bool) -> None:
    checked = silence(*(matcher(*fields) for fields in matchers))
    assert checked.covers(ALERT, run=RUN.key, owner=RUN.owner, now=150.0) is expected


@pytest.mark.parametrize(
    ("now", "project", "expected"),
    [
        pytest.param(99.9, None, False, id="before it begins"),
        pytest.param(100.0, None, True, id="from its beginning"),
        pytest.param(199.9, "math", True, id="until its end, in its project"),
        pytest.param(200.0, None, False, id="not at its end"),
        pytest.param(150.0, "code", False, id="not in another project"),
    ],
)
def test_a_silence_covers_its_time_and_project_only(now: float, project: str | None, expected: bool) -> None:
    checked = silence(matcher("rule", "=", "high"), project=project)
    assert checked.covers(ALERT, run=RUN.key, owner=RUN.owner, now=now) is expected


@pytest.mark.parametrize(
    "matchers",
    [
        pytest.param([], id="none"),
        pytest.param([("rule", "!=", "high")], id="all but one"),
        pytest.param([("rule", "~", "*")], id="a pattern that matches everything"),
        pytest.param([("", "=", "x")], id="no label"),
        pytest.param([("rule", "=", "x" * 257)], id="too long"),
        pytest.param([("rule", "=", str(i)) for i in range(17)], id="too many"),
    ],
)
def test_matchers_that_are_malformed_or_match_everything_are_refused(
    matchers: list[tuple[str, str, str]],
) -> None:
    with pytest.raises(InvalidInput, match="matchers"):
        check_matchers(tuple(matcher(*fields) for fields in matchers))


def test_a_pattern_that_would_stall_a_regular_expression_is_quick() -> None:
    evil = matcher("run", "~", "*a" * 100 + "b")
    assert not evil.matches({"run": "a" * 5000})


SIX = (10, 20, 30, 40, 50, 60)


@pytest.mark.parametrize(
    ("steps", "at", "now", "expected"),
    [
        pytest.param((10,), 10, 10, FlapState.STABLE, id="the first transition"),
        pytest.param(SIX[:5], 50, 50, FlapState.STABLE, id="the fifth"),
        pytest.param(SIX, 60, 60, FlapState.STARTED, id="the sixth starts it"),
        pytest.param((*SIX, 70), 70, 70, FlapState.ONGOING, id="the seventh continues it"),
        pytest.param((*SIX, 70), 60, 70, FlapState.STARTED, id="the sixth, seen after the seventh"),
        pytest.param((*SIX, 70), 70, 120, FlapState.STABLE, id="the seventh, seen when the alert is stable"),
        pytest.param((0, 100, 200, 300, 400, 500, 600), 600, 600, FlapState.STABLE, id="seven that are far apart"),
        pytest.param((7,) * 7, 7, 7, FlapState.ONGOING, id="a run state that changes within a step"),
    ],
)
def test_an_alert_flaps_when_it_changes_too_often(
    steps: tuple[int, ...], at: int, now: int, expected: FlapState
) -> None:
    assert flap_state(steps, at_step=at, now_step=now) is expected


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
