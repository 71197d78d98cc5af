"""Running tests of rules over series of signals."""

from __future__ import annotations

import yaml

from trmon.domain.pipeline.rule_testing import parse_rule_tests, run_rule_test
from trmon.domain.rules.rule_yaml import builtin_rules, parse_rules

MINE = parse_rules(
    "[{name: mine, severity: warn, summary: s, immune_steps: 0, when: {signal: scalar:pi_norm, above: 2}}]"
)


def series(**given: str) -> str:
    """Return a test of these series."""
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
