"""The schema of rule files agrees with what reads them."""

from __future__ import annotations

from importlib.resources import files

import pytest
import yaml
from jsonschema import Draft202012Validator

from tests.domain.rules import test_rule_yaml
from trmon.domain.rules.json_schema import rules_json_schema
from trmon.domain.rules.rule_yaml import FIELDS

VALIDATOR = Draft202012Validator(rules_json_schema())
BEYOND_A_SCHEMA = {
    "broken YAML",
    "a name twice",
    "a clear threshold beyond",
    "nothing to disable",
    "a number of the step in every update",
    "a label's name that is none",
    "a date that is none",
    "too deep",
    "huge",
    "a ring",
}


def case_table() -> list[tuple[str, str]]:
    """Return the texts that no rulebook may have, by the case that each is."""
    (mark,) = test_rule_yaml.test_what_is_wrong_is_named.pytestmark
    return [(case.id, case.values[0]) for case in mark.args[1]]


def test_it_is_a_schema() -> None:
    Draft202012Validator.check_schema(rules_json_schema())


def test_it_accepts_the_builtin_rules() -> None:
    builtin = yaml.safe_load(files("trmon.domain.rules").joinpath("builtin_rules.yaml").read_text("utf-8"))
    assert list(VALIDATOR.iter_errors(builtin)) == []


@pytest.mark.parametrize("text", [text for case, text in case_table() if case not in BEYOND_A_SCHEMA])
def test_it_refuses_what_the_reader_refuses(text: str) -> None:
    assert not VALIDATOR.is_valid(yaml.safe_load(text))


@pytest.mark.parametrize("when", test_rule_yaml.CONDITIONS, ids=str)
def test_it_accepts_every_kind_of_condition(when: dict[str, object]) -> None:
    rule = {"name": "r", "severity": "warn", "summary": "{{x}} {run}", "when": when}
    assert list(VALIDATOR.iter_errors([rule, {"name": "mask_rate", "disabled": True}])) == []


def test_it_knows_every_part_of_a_rule() -> None:
    assert rules_json_schema()["$defs"]["rule"]["properties"].keys() == FIELDS.keys()
