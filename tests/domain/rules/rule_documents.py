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


REPLACED = [
    ("an unknown severity", "warn", "loud", "severity", "page, warn, info"),
    ("not a number", "above: 0.05", "above: true", "when.above", "a number"),
    ("an unknown bound", "above", "over", "when.over", "is not allowed here; allowed: signal"),
    ("no signal", "{signal: kl_k1,", "{", "when", "must have one of 'signal', 'growth'"),
    ("an unknown name in it", "{value}", "{values}", "summary", "may use"),
    ("a format in it", "{value}", "{value:>99}", "summary", "without a format"),
    ("an open brace in it", "{value}", "{value", "summary", "is not a valid template"),
    ("an invalid name", "mine", "My Rule", "name", "a-z, 0-9 and _"),
    ("a near miss", "kl_k1", "kl_kk1", "when.signal", "did you mean kl_k1"),
    ("an unknown signal", "kl_k1", "pi_norm", "when.signal", "scalar:pi_norm"),
    ("a rule in place of a finding", "mine", "reference_kl", "when", "limits: {level: 3}"),
    ("a growth without a span", "signal:", "growth:", "when.over", "is required"),
    (
        "a span too long to remember",
        "signal: kl_k1",
        "slope: kl_k1, over: 121",
        "when.over",
        "must be 1 to 120 steps, and is 121",
    ),
    ("a span of a measure without one", "kl_k1", "kl_k1, over: 5", "when.over", "is not allowed here"),
    ("half a ratio", "signal: kl_k1", "ratio: [kl_k1]", "when.ratio", "must be two"),
    ("two bounds at once", "above: 0.05", "above: 0.05, below: 1", "when", "either"),
]
"""A case, what of the valid rule is replaced by what, and the field and the message of the error."""
APPENDED = [
    ("an unknown field", "fro_steps: 3", "fro_steps", "for_steps"),
    ("negative steps", "for_steps: -1", "for_steps", "zero or more"),
    ("negative seconds", "for_seconds: -1", "for_seconds", "zero or more"),
    ("a label that is not text", "labels: {a: 1}", "labels.a", "must be text"),
]
"""A case, a field that is added to the valid rule, and the field and the message of the error."""
CONDITION = [
    ("an empty any", "{any: []}", "any", "must be a list with at least one element"),
    ("a state among signals", "{all: [{state: stalled}]}", "all[0]", "cannot be combined"),
    ("a negative time of two trainers", "{side_by_side: -1}", "side_by_side", "zero or more seconds"),
    ("an unknown state", "{state: asleep}", "state", "must be one of running, paused, stalled, crashed, finished"),
]
"""A case, the condition of a rule, and the field in it and the message of the error."""
ENTRIES = [
    ("not a mapping", "7", "", "must be a mapping, and is int '7'"),
    ("a missing field", "name: x", ".when", "is required"),
    ("disabled: false", "{name: mask_rate, disabled: no}", ".disabled", "can only be true"),
    (
        "a limit of no clause",
        "{name: engine_mismatch, limits: {kl_k9: 1}}",
        ".limits.kl_k9",
        "is no clause of engine_mismatch",
    ),
    (
        "a limit that is no number",
        "{name: engine_mismatch, limits: {kl_k3: high}}",
        ".limits.kl_k3",
        "must be a number, and is str 'high'",
    ),
    ("a field of rules in a finding", "{name: reference_kl, for_steps: 9}", ".for_steps", "is not allowed"),
    ("an unknown severity of a finding", "{name: reference_kl, severity: loud}", ".severity", "page, warn"),
]
"""A case, the only entry of a document, and the field in it and the message of the error."""
BEYOND_A_SCHEMA = [
    ("broken YAML", "a: [", "rules", "is not YAML"),
    ("an invalid date", "- 2020-99-99", "rules", "is not YAML"),
    ("too deep", "[" * 1000, "rules", "is not YAML"),
    ("huge", RULE.replace("above: 0.05", f"above: 1{'0' * 400}"), "rules[0].when.above", "at most"),
    (
        "a condition in itself",
        "- {name: x, severity: page, summary: x, when: &it {any: [*it]}}",
        "rules",
        "aliases are not supported",
    ),
    ("a name twice", RULE + RULE, "rules[1].name", "'mine' is taken"),
    ("a clear threshold beyond", RULE.replace("0.04", "0.06"), "rules[0].when.clear", "beyond"),
    ("a label name that is not text", RULE + "  labels: {7: x}", "rules[0].labels.7", "must be text"),
    (
        "nothing to disable",
        "- {name: mask_rate_, disabled: true}",
        "rules[0].name",
        "neither a built-in rule nor a finding",
    ),
    (
        "a scalar of the step in every update",
        RULE.replace("kl_k1", "grad_norm") + "  reads: every_update",
        "rules[0].reads",
        "does not work with trainer scalars",
    ),
]
INVALID_RULES = [
    InvalidRules("not a list", "name: x", "rules", "must be a list of rules, and is dict"),
    *(InvalidRules(case, RULE.replace(old, new), f"rules[0].{at}", why) for case, old, new, at, why in REPLACED),
    *(InvalidRules(case, f"{RULE}  {field}", f"rules[0].{at}", why) for case, field, at, why in APPENDED),
    *(InvalidRules(case, _when(given), f"rules[0].when.{at}", why) for case, given, at, why in CONDITION),
    *(InvalidRules(case, f"- {entry}", f"rules[0]{at}", why) for case, entry, at, why in ENTRIES),
    *(InvalidRules(*case, in_schema=False) for case in BEYOND_A_SCHEMA),
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
