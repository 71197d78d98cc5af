"""Rules as YAML."""

from __future__ import annotations

import math

import pytest
import yaml

from trmon.domain.model.errors import InvalidInput
from trmon.domain.model.severity import Severity
from trmon.domain.rules.condition import AllOf, Truth, comparisons_of
from trmon.domain.rules.condition_yaml import condition_to_yaml
from trmon.domain.rules.rule import Rule
from trmon.domain.rules.rule_yaml import builtin_rules, overlay_rules, parse_rules
from trmon.domain.rules.signal_reader import SignalReader

RULE = """
- name: mine
  severity: warn
  summary: "{run}: {signal} is {value}"
  when: {signal: kl_k1, above: 0.05, clear: 0.04}
"""


def by_name(name: str) -> Rule:
    """Return a built-in rule."""
    return next(rule for rule in builtin_rules() if rule.name == name)


def test_what_the_builtin_rules_ask_of_people() -> None:
    severities = {rule.name: rule.severity for rule in builtin_rules()}
    pages = {name for name, severity in severities.items() if severity is Severity.PAGE}
    assert pages == {"corrupt_logprobs", "variance_blowup", "stalled", "crashed"}
    assert [name for name, severity in severities.items() if severity is Severity.INFO] == ["vacuous_bound"]
    assert by_name("mask_rate").severity_in("enforce") is Severity.PAGE
    assert {rule.name for rule in builtin_rules() if not rule.immune_steps} == {
        "corrupt_logprobs",
        "decision_mismatch",
        "batch_quarantined",
    }
    assert all(rule.runbook and rule.meaning for rule in builtin_rules())


def test_thresholds_are_those_of_the_formulas() -> None:
    found = {
        (part.signal, part.bound.value, part.threshold)
        for rule in builtin_rules()
        for part in comparisons_of(rule.when)
    }
    assert found >= {
        ("prob_pearson", "below", 0.95),
        ("prob_diff_max", "above", 0.5),
        ("ppl_ratio", "above", 0.01),
        ("kl_k1", "above", 0.05),
        ("saturated_fraction", "above", 0.001),
        ("invalid_fraction", "above", 0.0),
        ("kl_k3", "above", 0.05),
        ("chi2_token", "above", 0.3),
        ("ess_token", "below", 0.5),
        ("chi2_token", "above", 1.0),
        ("ess_seq_relative", "below", 0.3),
        ("mask_rate", "above", 0.5),
    }


@pytest.mark.parametrize(
    ("signals", "true"),
    [
        pytest.param({"prob_pearson": 0.9, "engine_lag": 0.0}, {"engine_mismatch"}, id="engines that differ"),
        pytest.param({"prob_pearson": 0.9, "engine_lag": 4.0}, {"stale_rollouts"}, id="old weights, not engines"),
        pytest.param({"prob_pearson": 0.95, "engine_lag": 0.0}, set(), id="at the threshold"),
        pytest.param({"prob_diff_max": 0.6, "engine_lag": 0.0}, {"engine_mismatch"}, id="one token far off"),
        pytest.param({"prob_diff_max": 0.6, "engine_lag": 4.0}, set(), id="one token far off, of old weights"),
        pytest.param({"prob_pearson": 0.999, "kl_k3": 0.06, "engine_lag": 1.0}, {"stale_rollouts"}, id="weights drift"),
        pytest.param({"prob_pearson": 0.9, "engine_lag": math.nan}, set(), id="an unknown lag blames nobody"),
    ],
)
def test_weights_that_moved_are_not_blamed_on_the_engines(signals: dict[str, float], true: set[str]) -> None:
    healthy = {"prob_diff_max": 0.1, "ppl_ratio": 1.0, "kl_k1": 0.0, "kl_k3": 0.0, "chi2_token": 0.0}
    readout = SignalReader({"prob_pearson": 1.0, **healthy, **signals}, "mismatch")
    rules = {name: by_name(name).when for name in ("engine_mismatch", "stale_rollouts")}
    evaluations = {name: when.evaluate(readout).raised for name, when in rules.items() if isinstance(when, AllOf)}
    assert {name for name, found in evaluations.items() if found.truth is Truth.TRUE} == true
    assert all(evaluations[name].signal != "engine_lag" for name in true)


def test_a_rule_is_read_with_the_defaults() -> None:
    (rule,) = parse_rules(RULE)
    assert (rule.for_steps, rule.for_seconds, rule.clear_for_steps, rule.immune_steps) == (1, 0.0, 1, 20)
    assert next(comparisons_of(rule.when)).clear == 0.04


@pytest.mark.parametrize(
    ("text", "field", "message"),
    [
        pytest.param("a: [", "rules", "is not YAML", id="broken YAML"),
        pytest.param("- 2020-99-99", "rules", "is not YAML", id="a date that is none"),
        pytest.param("[" * 5000, "rules", "is not YAML", id="too deep"),
        pytest.param("name: x", "rules", "must be a list of rules, and is dict", id="no list"),
        pytest.param(RULE.replace("above: 0.05", f"above: 1{'0' * 400}"), "rules[0].when.above", "at most", id="huge"),
        pytest.param(
            "- {name: x, severity: page, summary: x, when: &it {any: [*it]}}", "rules[0].when", "in itself", id="a ring"
        ),
        pytest.param("- 7", "rules[0]", "must be a mapping, and is int '7'", id="no mapping"),
        pytest.param(RULE + "  fro_steps: 3", "rules[0].fro_steps", "for_steps", id="an unknown part"),
        pytest.param("- name: x", "rules[0].when", "is required", id="a missing part"),
        pytest.param(RULE + RULE, "rules[1].name", "'mine' is taken", id="a name twice"),
        pytest.param(RULE.replace("warn", "loud"), "rules[0].severity", "page, warn, info", id="an unknown severity"),
        pytest.param(RULE.replace("0.04", "0.06"), "rules[0].when.clear", "beyond", id="a clear threshold beyond"),
        pytest.param(RULE.replace("above: 0.05", "above: true"), "rules[0].when.above", "a number", id="no number"),
        pytest.param(
            RULE.replace("above", "over"),
            "rules[0].when.over",
            "does not belong here; allowed: signal",
            id="an unknown bound",
        ),
        pytest.param(
            RULE.replace("{signal: kl_k1,", "{"), "rules[0].when", "must have one of 'signal', 'growth'", id="no signal"
        ),
        pytest.param(RULE.replace("{value}", "{values}"), "rules[0].summary", "may name", id="an unknown name in it"),
        pytest.param(
            RULE.replace("{value}", "{value:>99}"), "rules[0].summary", "without a format", id="a format in it"
        ),
        pytest.param(RULE.replace("{value}", "{value"), "rules[0].summary", "is no template", id="an open brace in it"),
        pytest.param(RULE.replace("mine", "My Rule"), "rules[0].name", "a-z, 0-9 and _", id="a name that is none"),
        pytest.param(RULE.replace("kl_k1", "kl_kk1"), "rules[0].when.signal", "did you mean kl_k1", id="a near miss"),
        pytest.param(
            RULE.replace("kl_k1", "pi_norm"), "rules[0].when.signal", "scalar:pi_norm", id="an unknown signal"
        ),
        pytest.param(
            RULE + "  labels: {7: x}", "rules[0].labels.7", "must be a text", id="a label's name that is none"
        ),
        pytest.param(
            "- {name: mask_rate, disabled: true}", "rules[0].name", "is no built-in rule", id="nothing to disable"
        ),
        pytest.param(
            "- {name: mask_rate, disabled: no}", "rules[0].disabled", "can only be true", id="disabled: false"
        ),
        pytest.param(
            RULE.replace("signal:", "growth:"), "rules[0].when.over", "is required", id="a growth without a span"
        ),
        pytest.param(
            RULE.replace("{signal: kl_k1", "{slope: kl_k1, over: 121"),
            "rules[0].when.over",
            "must be 1 to 120 steps, and is 121",
            id="a span too long to remember",
        ),
        pytest.param(
            RULE.replace("{signal: kl_k1", "{signal: kl_k1, over: 5"),
            "rules[0].when.over",
            "does not belong here",
            id="a span of what has none",
        ),
        pytest.param(
            RULE.replace("signal: kl_k1", "ratio: [kl_k1]"), "rules[0].when.ratio", "must be two", id="half a ratio"
        ),
        pytest.param(
            RULE.replace("above: 0.05", "above: 0.05, below: 1"), "rules[0].when", "either", id="two bounds at once"
        ),
        pytest.param(
            RULE.replace("kl_k1", "grad_norm") + "  reads: every_update",
            "rules[0].reads",
            "a trainer's own number",
            id="a number of the step in every update",
        ),
        pytest.param(RULE + "  for_steps: -1", "rules[0].for_steps", "zero or more", id="negative steps"),
        pytest.param(RULE + "  for_seconds: -1", "rules[0].for_seconds", "zero or more", id="negative seconds"),
        pytest.param(RULE + "  labels: {a: 1}", "rules[0].labels.a", "must be a text", id="a label that is no text"),
        pytest.param(
            RULE.replace("{signal: kl_k1, above: 0.05, clear: 0.04}", "{any: []}"),
            "rules[0].when.any",
            "must be a list of at least one",
            id="an empty any",
        ),
        pytest.param(
            RULE.replace("{signal: kl_k1, above: 0.05, clear: 0.04}", "{all: [{state: stalled}]}"),
            "rules[0].when.all[0]",
            "stands alone",
            id="a state among signals",
        ),
        pytest.param(
            RULE.replace("{signal: kl_k1, above: 0.05, clear: 0.04}", "{side_by_side: -1}"),
            "rules[0].when.side_by_side",
            "zero or more seconds",
            id="trainers side by side for less than no time",
        ),
        pytest.param(
            RULE.replace("{signal: kl_k1, above: 0.05, clear: 0.04}", "{state: asleep}"),
            "rules[0].when.state",
            "must be one of running, paused, stalled, crashed, finished",
            id="an unknown state",
        ),
    ],
)
def test_what_is_wrong_is_named(text: str, field: str, message: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_rules(text)
    assert caught.value.field == field
    assert message in caught.value.message


CONDITIONS = [
    {"signal": "kl_k1", "above": 0.05, "clear": 0.04},
    {"signal": "ppl_ratio", "above": 0.01, "clear": 0.01, "away_from": 1.0},
    {"growth": "clip_fraction", "over": 50, "above": 1.1, "clear": 1.0},
    {"relative": "grad_norm", "over": 100, "above": 10.0, "clear": 5.0},
    {"slope": "total_kl_k3", "over": 20, "below": -1.0, "clear": 0.0},
    {"zscore": "scalar:pi_norm", "above": 6.0, "clear": 4.0},
    {"ratio": ["mask_rate_long", "mask_rate:geo_mask"], "above": 2.0, "clear": 2.0},
    {"absent": "reward_mean"},
    {"state": "paused"},
    {"side_by_side": 60.0},
    {"all": [{"any": [{"absent": "kl_k1"}]}, {"signal": "kl_k3", "below": 1.0, "clear": 1.0}]},
]
"""One of each kind."""


@pytest.mark.parametrize("when", CONDITIONS, ids=str)
def test_a_condition_is_written_as_it_is_read(when: dict[str, object]) -> None:
    (rule,) = parse_rules(yaml.safe_dump([{"name": "r", "severity": "warn", "summary": "s", "when": when}]))
    assert condition_to_yaml(rule.when) == when


def test_a_file_adds_replaces_and_disables() -> None:
    mine = RULE + RULE.replace("mine", "mask_rate") + "- {name: crashed, disabled: true}"
    rules = {rule.name: rule for rule in overlay_rules(builtin_rules(), mine)}
    assert list(rules) == [rule.name for rule in builtin_rules() if rule.name != "crashed"] + ["mine"]
    assert rules["mask_rate"].summary == rules["mine"].summary
