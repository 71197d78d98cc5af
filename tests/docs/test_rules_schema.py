"""The JSON Schema of rule files agrees with the parser."""

from __future__ import annotations

from importlib.resources import files
from operator import attrgetter
from typing import Any

import pytest
import yaml

from docs.reference.rules_schema import rules_json_schema
from tests.domain.rules.rule_documents import CONDITIONS, INVALID_RULES, InvalidRules
from trmon.domain.rules.rule_yaml import FIELDS

SCHEMA = rules_json_schema()


def schema_errors(document: Any, schema: dict[str, Any]) -> list[str]:
    """Return what a document has against a schema. Errors: jsonschema.SchemaError if the schema is invalid."""
    from jsonschema import Draft202012Validator  # here: with cyclonedx beside it, its import compiles grammars for 5 s

    Draft202012Validator.check_schema(schema)
    return [error.message for error in Draft202012Validator(schema).iter_errors(document)]


def test_it_accepts_the_builtin_rules() -> None:
    builtin = yaml.safe_load(files("trmon.domain.rules").joinpath("builtin_rules.yaml").read_text("utf-8"))
    assert schema_errors(builtin, SCHEMA) == []


@pytest.mark.parametrize("rules", [rules for rules in INVALID_RULES if rules.in_schema], ids=attrgetter("case"))
def test_it_rejects_what_the_parser_rejects(rules: InvalidRules) -> None:
    assert schema_errors(yaml.safe_load(rules.text), SCHEMA)


@pytest.mark.parametrize("when", CONDITIONS, ids=str)
def test_it_accepts_every_kind_of_condition(when: dict[str, object]) -> None:
    rule = {"name": "r", "severity": "warn", "summary": "{{x}} {run}", "when": when}
    assert schema_errors([rule, {"name": "mask_rate", "disabled": True}], SCHEMA) == []


def test_it_has_every_field_of_a_rule() -> None:
    assert rules_json_schema()["$defs"]["rule"]["properties"].keys() == FIELDS.keys()
