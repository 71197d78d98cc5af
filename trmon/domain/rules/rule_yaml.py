"""Rules in YAML: the parser, whose errors name the place, and the built-in rules."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from functools import cache
from importlib.resources import files
from string import Formatter
from typing import Any

from trmon.domain.errors import InvalidInput, did_you_mean
from trmon.domain.findings.catalogue import Catalogue, builtin_catalogue, with_limits, without
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
from trmon.domain.rules.rule import RowSelection, Rule, RuleSet
from trmon.domain.severity import Severity

NAME = re.compile(r"[a-z][a-z0-9_]{0,63}")
SUMMARY_FIELDS = ("signal", "value", "threshold", "run", "step", "error", "drift")


@cache
def builtin_rules() -> RuleSet:
    """Return the findings and the built-in rules beside them."""
    text = files("trmon.domain.rules").joinpath("builtin_rules.yaml").read_text("utf-8")
    return overlay_rules(RuleSet((), builtin_catalogue()), text)


def overlay_rules(base: RuleSet, text: str) -> RuleSet:
    """Return a base set with the entries of a YAML list applied to it.

    A rule with the name of a base rule replaces it; `{name: ..., disabled: true}` turns off a rule or a finding;
    `{name: engine_mismatch, limits: {kl_k3: 0.1}, severity: warn}` changes a finding. New rules are appended.
    Errors: InvalidInput with the place, the expected and the given value.
    """
    entries = yaml_document(text, "rules")
    if not isinstance(entries, list):
        raise InvalidInput("rules", f"must be a list of rules, and is {yaml_type_name(entries)}")
    rules: dict[str, Rule | None] = {rule.name: rule for rule in base.others}
    catalogue, names = base.catalogue, set[str]()
    for i, entry in enumerate(entries):
        place = f"rules[{i}]"
        given = yaml_mapping(entry, place)
        name = _name(given.get("name"), f"{place}.name") if "name" in given else ""
        if name in catalogue.by_id:
            catalogue = _with_finding(catalogue, name, given, place)
        elif "disabled" in given:
            rules[_disabled(given, place, known=(*rules, *catalogue.by_id))] = None
        else:
            rules[name] = _rule(given, place)
        if name in names:
            raise InvalidInput(f"{place}.name", f"{name!r} is taken by an earlier rule")
        names.add(name)
    return RuleSet(tuple(rule for rule in rules.values() if rule is not None), catalogue)


def _with_finding(catalogue: Catalogue, name: str, given: Mapping[str, Any], place: str) -> Catalogue:
    if "when" in given:
        clause = catalogue.by_id[name].clauses[0]
        raise InvalidInput(
            f"{place}.when",
            f"{name} is a finding: change its limits by {{name: {name}, limits: {{{clause.id}: "
            f"{clause.decisive.limit:g}}}}}, or give a rule of your own another name",
        )
    reject_unknown_keys(given, place, "name", "disabled", "severity", "limits")
    if "disabled" in given:
        _disabled(given, place, known=(name,))
        return without(catalogue, name)
    severity = yaml_enum(Severity)(given["severity"], f"{place}.severity") if "severity" in given else None
    limits = yaml_mapping(given.get("limits", {}), f"{place}.limits")
    for clause_id, limit in limits.items():
        if isinstance(limit, bool) or not isinstance(limit, int | float):
            raise InvalidInput(f"{place}.limits.{clause_id}", f"must be a number, and is {yaml_type_name(limit)}")
    try:
        return with_limits(catalogue, name, limits=limits, severity=severity)
    except InvalidInput as error:
        raise InvalidInput(f"{place}.{error.field}", error.message) from error


def _disabled(given: Mapping[str, Any], place: str, *, known: Collection[str]) -> str:
    reject_unknown_keys(given, place, "name", "disabled")
    if given["disabled"] is not True:
        raise InvalidInput(f"{place}.disabled", f"can only be true, and is {yaml_type_name(given['disabled'])}")
    name = _name(given.get("name"), f"{place}.name")
    if name not in known:
        told = f"{name!r} is neither a built-in rule nor a finding, so it cannot be disabled"
        raise InvalidInput(f"{place}.name", told + did_you_mean(name, known))
    return name


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
    "is_symptom": yaml_flag,
}
