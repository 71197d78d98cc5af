"""Documents of rules for tests: a valid rule, invalid documents with their errors, and one condition of each kind."""

from __future__ import annotations

from typing import NamedTuple

RULE = """
- name: mine
  severity: warn
  summary: "{run}: {signal} is {value}"
  when: {signal: kl_k1, above: 0.05, clear: 0.04}
"""


class InvalidRules(NamedTuple):
    """An invalid document, and the field and message of its error; a JSON Schema rejects it too, unless it cannot."""

    case: str
    text: str
    field: str
    message: str
    in_schema: bool = True


def _when(condition: str) -> str:
    return RULE.replace("{signal: kl_k1, above: 0.05, clear: 0.04}", condition)


INVALID_RULES = [
    InvalidRules("broken YAML", "a: [", "rules", "is not YAML", in_schema=False),
    InvalidRules("an invalid date", "- 2020-99-99", "rules", "is not YAML", in_schema=False),
    InvalidRules("too deep", "[" * 5000, "rules", "is not YAML", in_schema=False),
    InvalidRules("not a list", "name: x", "rules", "must be a list of rules, and is dict"),
    InvalidRules(
        "huge", RULE.replace("above: 0.05", f"above: 1{'0' * 400}"), "rules[0].when.above", "at most", in_schema=False
    ),
    InvalidRules(
        "a condition in itself",
        "- {name: x, severity: page, summary: x, when: &it {any: [*it]}}",
        "rules",
        "aliases are not supported",
        in_schema=False,
    ),
    InvalidRules("not a mapping", "- 7", "rules[0]", "must be a mapping, and is int '7'"),
    InvalidRules("an unknown field", RULE + "  fro_steps: 3", "rules[0].fro_steps", "for_steps"),
    InvalidRules("a missing field", "- name: x", "rules[0].when", "is required"),
    InvalidRules("a name twice", RULE + RULE, "rules[1].name", "'mine' is taken", in_schema=False),
    InvalidRules("an unknown severity", RULE.replace("warn", "loud"), "rules[0].severity", "page, warn, info"),
    InvalidRules(
        "a clear threshold beyond", RULE.replace("0.04", "0.06"), "rules[0].when.clear", "beyond", in_schema=False
    ),
    InvalidRules("not a number", RULE.replace("above: 0.05", "above: true"), "rules[0].when.above", "a number"),
    InvalidRules(
        "an unknown bound", RULE.replace("above", "over"), "rules[0].when.over", "is not allowed here; allowed: signal"
    ),
    InvalidRules(
        "no signal", RULE.replace("{signal: kl_k1,", "{"), "rules[0].when", "must have one of 'signal', 'growth'"
    ),
    InvalidRules("an unknown name in it", RULE.replace("{value}", "{values}"), "rules[0].summary", "may use"),
    InvalidRules("a format in it", RULE.replace("{value}", "{value:>99}"), "rules[0].summary", "without a format"),
    InvalidRules(
        "an open brace in it", RULE.replace("{value}", "{value"), "rules[0].summary", "is not a valid template"
    ),
    InvalidRules("an invalid name", RULE.replace("mine", "My Rule"), "rules[0].name", "a-z, 0-9 and _"),
    InvalidRules("a near miss", RULE.replace("kl_k1", "kl_kk1"), "rules[0].when.signal", "did you mean kl_k1"),
    InvalidRules("an unknown signal", RULE.replace("kl_k1", "pi_norm"), "rules[0].when.signal", "scalar:pi_norm"),
    InvalidRules(
        "a label name that is not text", RULE + "  labels: {7: x}", "rules[0].labels.7", "must be text", in_schema=False
    ),
    InvalidRules(
        "nothing to disable",
        "- {name: mask_rate_, disabled: true}",
        "rules[0].name",
        "neither a built-in rule nor a finding",
        in_schema=False,
    ),
    InvalidRules("disabled: false", "- {name: mask_rate, disabled: no}", "rules[0].disabled", "can only be true"),
    InvalidRules(
        "a rule in place of a finding", RULE.replace("mine", "reference_kl"), "rules[0].when", "limits: {level: 3}"
    ),
    InvalidRules(
        "a limit of no clause",
        "- {name: engine_mismatch, limits: {kl_k9: 1}}",
        "rules[0].limits.kl_k9",
        "is no clause of engine_mismatch",
    ),
    InvalidRules(
        "a limit that is no number",
        "- {name: engine_mismatch, limits: {kl_k3: high}}",
        "rules[0].limits.kl_k3",
        "must be a number, and is str 'high'",
    ),
    InvalidRules(
        "a field of rules in a finding", "- {name: reference_kl, for_steps: 9}", "rules[0].for_steps", "is not allowed"
    ),
    InvalidRules(
        "an unknown severity of a finding", "- {name: reference_kl, severity: loud}", "rules[0].severity", "page, warn"
    ),
    InvalidRules("a growth without a span", RULE.replace("signal:", "growth:"), "rules[0].when.over", "is required"),
    InvalidRules(
        "a span too long to remember",
        RULE.replace("{signal: kl_k1", "{slope: kl_k1, over: 121"),
        "rules[0].when.over",
        "must be 1 to 120 steps, and is 121",
    ),
    InvalidRules(
        "a span of a measure without one",
        RULE.replace("{signal: kl_k1", "{signal: kl_k1, over: 5"),
        "rules[0].when.over",
        "is not allowed here",
    ),
    InvalidRules("half a ratio", RULE.replace("signal: kl_k1", "ratio: [kl_k1]"), "rules[0].when.ratio", "must be two"),
    InvalidRules("two bounds at once", RULE.replace("above: 0.05", "above: 0.05, below: 1"), "rules[0].when", "either"),
    InvalidRules(
        "a scalar of the step in every update",
        RULE.replace("kl_k1", "grad_norm") + "  reads: every_update",
        "rules[0].reads",
        "does not work with trainer scalars",
        in_schema=False,
    ),
    InvalidRules("negative steps", RULE + "  for_steps: -1", "rules[0].for_steps", "zero or more"),
    InvalidRules("negative seconds", RULE + "  for_seconds: -1", "rules[0].for_seconds", "zero or more"),
    InvalidRules("a label that is not text", RULE + "  labels: {a: 1}", "rules[0].labels.a", "must be text"),
    InvalidRules("an empty any", _when("{any: []}"), "rules[0].when.any", "must be a list with at least one element"),
    InvalidRules(
        "a state among signals", _when("{all: [{state: stalled}]}"), "rules[0].when.all[0]", "cannot be combined"
    ),
    InvalidRules(
        "a negative time of two trainers",
        _when("{side_by_side: -1}"),
        "rules[0].when.side_by_side",
        "zero or more seconds",
    ),
    InvalidRules(
        "an unknown state",
        _when("{state: asleep}"),
        "rules[0].when.state",
        "must be one of running, paused, stalled, crashed, finished",
    ),
]
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
"""One condition of each kind."""
