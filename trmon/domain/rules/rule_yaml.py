"""Rules in YAML: the parser, whose errors name the place, and the built-in rules."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from functools import cache
from importlib.resources import files
from string import Formatter
from typing import Any

from trmon.domain.errors import InvalidInput
from trmon.domain.finding import CAUSES, Finding, Severity
from trmon.domain.rules import condition_yaml
from trmon.domain.rules.condition_yaml import (
    reject_unknown_keys,
    yaml_document,
    yaml_enum,
    yaml_flag,
    yaml_labels,
    yaml_mapping,
    yaml_seconds,
    yaml_steps,
    yaml_text,
    yaml_type_name,
)
from trmon.domain.rules.rule import RowSelection, Rule

NAME = re.compile(r"[a-z][a-z0-9_]{0,63}")
SUMMARY_FIELDS = ("signal", "value", "threshold", "run", "step", "error", "drift", "drivers")
"""The fields that a summary may use."""


@cache
def builtin_rules() -> tuple[Rule, ...]:
    """Return the built-in rules. Source: formulas, section 9."""
    return parse_rules(files("trmon.domain.rules").joinpath("builtin_rules.yaml").read_text("utf-8"))


def parse_rules(text: str) -> tuple[Rule, ...]:
    """Return the rules in a YAML list.

    Errors: InvalidInput with the place, the expected and the given value.
    """
    return overlay_rules((), text)


def overlay_rules(base: tuple[Rule, ...], text: str) -> tuple[Rule, ...]:
    """Return a base set with the rules of a YAML list applied to it.

    A rule with the name of a base rule replaces it, `{name: ..., disabled: true}` removes it; new rules are appended.
    Errors: InvalidInput with the place, the expected and the given value.
    """
    entries = yaml_document(text, "rules")
    if not isinstance(entries, list):
        raise InvalidInput("rules", f"must be a list of rules, and is {yaml_type_name(entries)}")
    by_name: dict[str, Rule | None] = {rule.name: rule for rule in base}
    names: set[str] = set()
    for i, entry in enumerate(entries):
        name, rule = _entry(entry, f"rules[{i}]", base=by_name)
        if name in names:
            raise InvalidInput(f"rules[{i}].name", f"{name!r} is taken by an earlier rule")
        names.add(name)
        by_name[name] = rule
    return tuple(rule for rule in by_name.values() if rule is not None)


def _entry(entry: object, place: str, *, base: Collection[str]) -> tuple[str, Rule | None]:
    """Return the name of a rule and the rule, None if it is disabled."""
    given = yaml_mapping(entry, place)
    if "disabled" not in given:
        rule = _rule(given, place)
        return rule.name, rule
    reject_unknown_keys(given, place, "name", "disabled")
    if given["disabled"] is not True:
        raise InvalidInput(f"{place}.disabled", f"can only be true, and is {yaml_type_name(given['disabled'])}")
    name = _name(given.get("name"), f"{place}.name")
    if name not in base:
        raise InvalidInput(f"{place}.name", f"{name!r} is not a built-in rule, so it cannot be disabled")
    return name, None


def _rule(given: Mapping[str, Any], place: str) -> Rule:
    fields = {}
    for name, value in given.items():
        if name not in FIELDS:
            raise InvalidInput(f"{place}.{name}", f"is not a field of a rule; fields: {', '.join(FIELDS)}")
        fields[name] = FIELDS[name](value, f"{place}.{name}")
    for name in REQUIRED:
        if name not in fields:
            raise InvalidInput(f"{place}.{name}", "is required")
    rule = Rule(**fields)
    if rule.reads is RowSelection.EVERY_UPDATE and rule.reads_scalars:
        raise InvalidInput(
            f"{place}.reads", "every_update does not work with trainer scalars, which have one value per step"
        )
    return rule


def _name(value: object, place: str) -> str:
    name = yaml_text(value, place)
    if not NAME.fullmatch(name):
        raise InvalidInput(place, f"must be 1 to 64 of a-z, 0-9 and _, beginning with a letter, and is {name[:80]!r}")
    return name


def _finding(value: object, place: str) -> Finding:
    letter = yaml_text(value, place)
    found = next((finding for finding in CAUSES if finding.value == letter), None)
    if found is None:
        raise InvalidInput(place, f"must be one of {', '.join(finding.value for finding in CAUSES)}, and is {letter!r}")
    return found


def _summary(value: object, place: str) -> str:
    """Return a summary template; format specifications are rejected, since a huge width would be applied."""
    text = yaml_text(value, place)
    try:
        named = [(name, spec or conversion) for _, name, spec, conversion in Formatter().parse(text)]
    except ValueError as error:
        raise InvalidInput(place, f"is not a valid template: {error}") from error
    for name, form in named:
        if form or name not in (None, *SUMMARY_FIELDS):
            raise InvalidInput(place, f"may use {{{'}, {'.join(SUMMARY_FIELDS)}}} only, without a format")
    return text


REQUIRED = ("name", "when", "severity", "summary")
FIELDS: dict[str, Callable[[Any, str], Any]] = {
    "name": _name,
    "when": condition_yaml.parse_condition,
    "severity": yaml_enum(Severity),
    "severity_when_enforcing": yaml_enum(Severity),
    "summary": _summary,
    "reads": yaml_enum(RowSelection),
    "for_steps": yaml_steps,
    "for_seconds": yaml_seconds,
    "clear_for_steps": yaml_steps,
    "immune_steps": yaml_steps,
    "labels": yaml_labels,
    "runbook": yaml_text,
    "meaning": yaml_text,
    "finding": _finding,
    "is_symptom": yaml_flag,
}
"""The fields of a rule and their parsers."""
