"""Rules as YAML."""

from __future__ import annotations

import tracemalloc
from contextlib import suppress
from operator import attrgetter
from textwrap import indent

import pytest
import yaml

from tests.domain.pipeline.closings import parse_rules
from tests.domain.rules.rule_documents import CONDITIONS, INVALID_RULES, RULE, InvalidRules
from trmon.domain.errors import InvalidInput
from trmon.domain.rules.condition import comparisons_of
from trmon.domain.rules.condition_yaml import condition_to_yaml
from trmon.domain.rules.rule import Rule
from trmon.domain.rules.rule_yaml import builtin_rules, overlay_rules
from trmon.domain.severity import Severity


def by_name(name: str) -> Rule:
    return builtin_rules().by_name[name]


def test_what_the_builtin_rules_ask_of_people() -> None:
    severities = {rule.name: rule.severity for rule in builtin_rules().rules}
    pages = {name for name, severity in severities.items() if severity is Severity.PAGE}
    assert pages == {"not_a_number", "corrupt_logprobs", "reward_collapse", "stalled", "crashed"}
    assert [name for name, severity in severities.items() if severity is Severity.INFO] == ["vacuous_bound"]
    assert by_name("mask_rate").severity_in("enforce") is Severity.PAGE
    at_once = {rule.name for rule in builtin_rules().rules if not rule.immune_steps}
    assert at_once == {
        *("not_a_number", "corrupt_logprobs", "stalled", "crashed"),
        *("decision_mismatch", "batch_quarantined"),
    }
    assert all(rule.runbook and rule.meaning for rule in builtin_rules().others)


def test_a_rule_is_read_with_the_defaults() -> None:
    (rule,) = parse_rules(RULE).rules
    assert (rule.for_steps, rule.for_seconds, rule.clear_for_steps, rule.immune_steps) == (1, 0.0, 1, 20)
    assert next(comparisons_of(rule.when)).clear == 0.04


@pytest.mark.parametrize("rules", INVALID_RULES, ids=attrgetter("case"))
def test_an_error_names_the_wrong_place(rules: InvalidRules) -> None:
    with pytest.raises(InvalidInput) as caught:
        overlay_rules(builtin_rules(), rules.text)
    assert caught.value.field == rules.field
    assert rules.message in caught.value.message


@pytest.mark.parametrize("when", CONDITIONS, ids=str)
def test_a_condition_survives_a_round_trip_through_yaml(when: dict[str, object]) -> None:
    (rule,) = parse_rules(yaml.safe_dump([{"name": "r", "severity": "warn", "summary": "s", "when": when}])).rules
    assert condition_to_yaml(rule.when) == when


def test_a_file_adds_replaces_and_disables() -> None:
    mine = RULE + RULE.replace("mine", "mask_rate") + "- {name: crashed, disabled: true}"
    rules = overlay_rules(builtin_rules(), mine).by_name
    assert list(rules) == [rule.name for rule in builtin_rules().rules if rule.name != "crashed"] + ["mine"]
    assert rules["mask_rate"].summary == rules["mine"].summary


def test_a_file_changes_the_limits_and_the_severity_of_a_finding_for_everything_that_judges() -> None:
    changed = overlay_rules(builtin_rules(), "- {name: engine_mismatch, limits: {kl_k3: 0.1}, severity: page}")
    clauses = changed.catalogue.by_key
    assert clauses["engine_mismatch.kl_k3"].decisive.limit == 0.1
    assert clauses["engine_mismatch.kl_k1"].decisive.limit == 0.05
    assert {clause.severity for clause in changed.catalogue.by_id["engine_mismatch"].clauses} == {Severity.PAGE}
    assert changed.by_name["engine_mismatch"].severity is Severity.PAGE
    assert changed.judge.catalogue is changed.catalogue


def test_a_finding_that_is_turned_off_is_neither_a_rule_nor_judged() -> None:
    changed = overlay_rules(builtin_rules(), "- {name: engine_mismatch, disabled: true}")
    assert "engine_mismatch" not in changed.by_name
    assert not changed.catalogue.by_id["engine_mismatch"].clauses


def test_nested_aliases_are_refused_before_they_expand() -> None:
    levels = [f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 10)}]" for level in range(1, 7)]
    bomb = "\n".join(["a0: &a0 [lol, lol]", *levels])
    tracemalloc.start()
    with pytest.raises(InvalidInput, match="aliases are not supported"):
        parse_rules(f"- when:\n{indent(bomb, '    ')}\n")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 2 << 20


@pytest.mark.parametrize("levels", [20, 40, 60, 80, 100, 150, 200, 300])
def test_a_condition_of_any_depth_is_read_or_refused(levels: int) -> None:
    nested = "{any: [" * levels + "{signal: kl_k1, above: 1}" + "]}" * levels
    with suppress(InvalidInput):
        parse_rules(f"- {{name: x, severity: page, summary: x, when: {nested}}}")
