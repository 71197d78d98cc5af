"""Silences: which alerts they mute, and which are refused."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.domain.alerts.alert_builders import ALERT
from tests.domain.memory_log import MemoryLog
from trmon.domain.alerts.silences import (
    FlapState,
    Matcher,
    MatchOperator,
    Silence,
    check_matchers,
    flap_state,
)
from trmon.domain.errors import InvalidInput

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
