"""Running tests of rules over series of signals."""

from __future__ import annotations

import math

import pytest
import yaml

from tests.domain.pipeline.closings import parse_rules
from trmon.domain.errors import InvalidInput
from trmon.domain.pipeline.rule_testing import ExpectedAlert, parse_rule_tests, run_rule_test, series_values
from trmon.domain.rules.rule_yaml import builtin_rules, overlay_rules

MINE = parse_rules(
    "[{name: mine, severity: warn, summary: s, immune_steps: 0, when: {signal: scalar:pi_norm, above: 2}}]"
)


def series(**given: str) -> str:
    return yaml.safe_dump({"tests": [{"name": "mine", "series": given, "alerts": []}]})


def run(test: str, *, rules: str = "mine") -> list[str]:
    """Return what the only test of a document makes its rules do."""
    (given,) = parse_rule_tests(test).tests
    return [str(found) for found in run_rule_test(given, MINE if rules == "mine" else builtin_rules())]


@pytest.mark.parametrize("name", ["mismatch_prob_pearson", "prob_pearson"])
def test_a_finding_fires_and_resolves_at_the_steps_at_which_the_judge_says_so(name: str) -> None:
    found = run(series(**{name: "1x29 0.9x9 1x19"}), rules="builtin")
    assert found == ["engine_mismatch firing at 34", "engine_mismatch resolved at 49"]


def test_a_missing_value_is_not_a_value_that_is_not_a_number() -> None:
    assert run(series(**{"scalar:loss": "1x24 _x9"}), rules="builtin") == []
    assert run(series(**{"scalar:loss": "1x24 nan nan"}), rules="builtin") == ["not_a_number firing at 26"]


def test_the_limits_of_a_rules_file_change_what_is_found() -> None:
    lax = overlay_rules(builtin_rules(), "[{name: engine_mismatch, limits: {pearson: 0.2}}]")
    (test,) = parse_rule_tests(series(prob_pearson="0.9x59")).tests
    assert [str(alert) for alert in run_rule_test(test, builtin_rules())] == ["engine_mismatch firing at 20"]
    assert run_rule_test(test, lax) == ()


def test_the_last_step_is_evaluated_and_trainer_scalars_are_read() -> None:
    assert run(series(**{"scalar:pi_norm": "0x4 3"})) == ["mine firing at 5"]


def test_a_series_of_a_history_signal_replaces_the_folded_value() -> None:
    assert run(series(collapse_risk="0x69 0.9x9"), rules="builtin") == ["collapse_risk firing at 72"]


TEST = """
tests:
  - name: mine
    series: {mismatch_kl_k1: '0x9'}
    alerts: []
"""


@pytest.mark.parametrize(
    ("text", "values"),
    [
        pytest.param("1 -2.5 1e-3 .5", [1.0, -2.5, 1e-3, 0.5], id="numbers"),
        pytest.param("3x2", [3.0, 3.0, 3.0], id="a number and two more of it"),
        pytest.param("1+0.5x3", [1.0, 1.5, 2.0, 2.5], id="rising"),
        pytest.param("1-1x2 _x1 inf", [1.0, 0.0, -1.0, None, None, math.inf], id="falling, missing, infinite"),
        pytest.param("1e-3+1e-3x1", [1e-3, 2e-3], id="with exponents"),
    ],
)
def test_series_are_written_as_promtool_writes_them(text: str, values: list[float | None]) -> None:
    assert series_values(text, "here") == tuple(values)


@pytest.mark.parametrize("text", ["x3", "1x", "one", "1++2x3", "1x9999999", "1x99999 1x9"])
def test_text_that_is_not_a_series_is_rejected(text: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        series_values(text, "here")
    assert caught.value.field == "here"


def test_a_file_names_its_rules_and_what_it_expects() -> None:
    expected = TEST.replace("[]", "[{rule: r, state: firing, step: 3}]").replace("tests:", "rules: r.yaml\ntests:", 1)
    given = parse_rule_tests(expected)
    assert given.rules == "r.yaml"
    assert given.tests[0].alerts == (ExpectedAlert("r", "firing", 3),)


ERRORS = [
    ("not a mapping", "[]", "file", "must be a mapping"),
    ("no tests", "tests: []", "tests", "must be a list with at least one element"),
    ("broken YAML", "a: [", "tests", "is not YAML"),
    ("an unknown field", "case: 1", "file.case", "allowed: rules, tests"),
    ("an unknown field of a test", TEST.replace("alerts", "alarms"), "tests[0].alarms", "alerts"),
    ("no expectation", TEST.replace("    alerts: []", ""), "tests[0].alerts", "is required"),
    ("an unknown signal", TEST.replace("mismatch_kl_k1", "kl_kk1"), "tests[0].series.kl_kk1", "did you mean kl_k1"),
    ("hexadecimal", TEST.replace("'0x9'", "0x9"), "tests[0].series.mismatch_kl_k1", "quoted text"),
    ("not a series", TEST.replace("0x9", "zero"), "tests[0].series.mismatch_kl_k1", "'zero'"),
    (
        "a state without a notification",
        TEST.replace("[]", "[{rule: r, state: pending, step: 3}]"),
        "tests[0].alerts[0].state",
        "firing, resolved",
    ),
    ("no step", TEST.replace("[]", "[{rule: r, state: firing}]"), "tests[0].alerts[0].step", "whole number"),
]


@pytest.mark.parametrize(("text", "field", "message"), [pytest.param(*case, id=sentence) for sentence, *case in ERRORS])
def test_an_error_names_the_wrong_place(text: str, field: str, message: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_rule_tests(text)
    assert caught.value.field == field
    assert message in caught.value.message
