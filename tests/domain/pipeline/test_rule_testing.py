"""Running tests of rules over series of signals."""

from __future__ import annotations

import math

import pytest
import yaml

from trmon.domain.errors import InvalidInput
from trmon.domain.pipeline.rule_testing import ExpectedAlert, parse_rule_tests, run_rule_test, series_values
from trmon.domain.rules.rule_yaml import builtin_rules, parse_rules

MINE = parse_rules(
    "[{name: mine, severity: warn, summary: s, immune_steps: 0, when: {signal: scalar:pi_norm, above: 2}}]"
)


def series(**given: str) -> str:
    return yaml.safe_dump({"tests": [{"name": "mine", "series": given, "alerts": []}]})


def run(test: str, *, rules: str = "mine") -> list[str]:
    """Return what the only test of a document makes its rules do."""
    (given,) = parse_rule_tests(test).tests
    return [str(found) for found in run_rule_test(given, MINE if rules == "mine" else builtin_rules())]


def test_alerts_fire_and_resolve_at_their_steps() -> None:
    given = {"mismatch_prob_pearson": "1x29 0.9x9 1x9", "mismatch_prob_diff_max": "0x49", "mismatch_ppl_ratio": "1x49"}
    known = {**given, "mismatch_kl_k1": "0x49", "engine_lag": "0x49"}
    assert run(series(**known), rules="builtin") == ["engine_mismatch firing at 34", "engine_mismatch resolved at 44"]
    assert run(series(**given, engine_lag="0x49"), rules="builtin") == ["engine_mismatch firing at 34"]


def test_the_last_step_is_evaluated_and_trainer_scalars_are_read() -> None:
    assert run(series(**{"scalar:pi_norm": "0x4 3"})) == ["mine firing at 5"]


def test_a_series_of_a_history_signal_replaces_the_folded_value() -> None:
    assert run(series(response_length_growth="1x29 1.3x29"), rules="builtin") == ["length_surge firing at 49"]


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
        pytest.param("1-1x2 _x1 inf", [1.0, 0.0, -1.0, math.nan, math.nan, math.inf], id="falling, missing, infinite"),
        pytest.param("1e-3+1e-3x1", [1e-3, 2e-3], id="with exponents"),
    ],
)
def test_series_are_written_as_promtool_writes_them(text: str, values: list[float]) -> None:
    assert series_values(text, "here") == pytest.approx(values, nan_ok=True)


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
