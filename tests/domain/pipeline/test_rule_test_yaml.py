"""The YAML files that test rules: what is read and what is rejected."""

from __future__ import annotations

import math

import pytest

from trmon.domain.errors import InvalidInput
from trmon.domain.pipeline.rule_testing import ExpectedAlert, parse_rule_tests, series_values

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


@pytest.mark.parametrize(
    ("text", "field", "message"),
    [
        pytest.param("[]", "file", "must be a mapping", id="not a mapping"),
        pytest.param("tests: []", "tests", "must be a list with at least one element", id="no tests"),
        pytest.param("a: [", "tests", "is not YAML", id="broken YAML"),
        pytest.param("case: 1", "file.case", "allowed: rules, tests", id="an unknown field"),
        pytest.param(TEST.replace("alerts", "alarms"), "tests[0].alarms", "alerts", id="an unknown field of a test"),
        pytest.param(TEST.replace("    alerts: []", ""), "tests[0].alerts", "is required", id="no expectation"),
        pytest.param(
            TEST.replace("mismatch_kl_k1", "kl_kk1"),
            "tests[0].series.kl_kk1",
            "did you mean kl_k1",
            id="an unknown signal",
        ),
        pytest.param(TEST.replace("'0x9'", "0x9"), "tests[0].series.mismatch_kl_k1", "quoted text", id="hexadecimal"),
        pytest.param(TEST.replace("0x9", "zero"), "tests[0].series.mismatch_kl_k1", "'zero'", id="not a series"),
        pytest.param(
            TEST.replace("[]", "[{rule: r, state: pending, step: 3}]"),
            "tests[0].alerts[0].state",
            "firing, resolved",
            id="a state without a notification",
        ),
        pytest.param(
            TEST.replace("[]", "[{rule: r, state: firing}]"), "tests[0].alerts[0].step", "whole number", id="no step"
        ),
    ],
)
def test_an_error_names_the_wrong_place(text: str, field: str, message: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_rule_tests(text)
    assert caught.value.field == field
    assert message in caught.value.message
