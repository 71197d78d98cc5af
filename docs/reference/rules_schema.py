"""The JSON Schema of rule files, from the parser's tables; editors use it for completion, generate.py writes it."""

from __future__ import annotations

from typing import Any

from trmon.domain.findings.catalogue import FindingSpec, builtin_catalogue
from trmon.domain.rules.condition import SCALAR_PREFIX, signal_names
from trmon.domain.rules.condition_yaml import MEASURES, SPAN_MEASURES
from trmon.domain.rules.rule import RowSelection
from trmon.domain.rules.rule_yaml import NAME, REQUIRED, SUMMARY_FIELDS
from trmon.domain.runs.run import RunState
from trmon.domain.severity import Severity
from trmon.domain.signals.derived_signals import SHADOW_PREFIX
from trmon.domain.signals.windows import MAX_SPAN_STEPS

Schema = dict[str, Any]

_STEPS: Schema = {"type": "integer", "minimum": 0}
_SECONDS: Schema = {"type": "number", "minimum": 0}
_TEXT: Schema = {"type": "string", "minLength": 1}
_NUMBER: Schema = {"type": "number"}
_SIGNAL: Schema = {"$ref": "#/$defs/signal"}
_PARTS: Schema = {"type": "array", "minItems": 1, "items": {"$ref": "#/$defs/over_signals"}}


def rules_json_schema() -> Schema:
    """Return the schema; it cannot express that names are unique and where `clear` may be."""
    over_signals = [
        *map(_comparison, MEASURES),
        _single("absent", _SIGNAL),
        _single("any", _PARTS),
        _single("all", _PARTS),
    ]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Rules of trmon",
        "type": "array",
        "items": {"oneOf": [{"$ref": "#/$defs/rule"}, {"$ref": "#/$defs/finding"}, _disabled()]},
        "$defs": {
            "signal": {"type": "string", "pattern": _signal_name_pattern()},
            "rule": _object(_rule(), *REQUIRED),
            "finding": {"oneOf": [_finding(spec) for spec in builtin_catalogue().findings if spec.clauses]},
            "over_signals": {"oneOf": over_signals},
            "condition": {"oneOf": [{"$ref": "#/$defs/over_signals"}, *_run_conditions()]},
        },
    }


def _signal_name_pattern() -> str:
    """Return a regular expression that matches all names that rules may read."""
    names = "|".join(sorted(signal_names()))
    return f"^({names}|({SCALAR_PREFIX}|{SHADOW_PREFIX}).+)$"


def _run_conditions() -> list[Schema]:
    return [_single("state", _choice(RunState)), _single("side_by_side", _SECONDS)]


def _rule() -> dict[str, Schema]:
    """Return the schemas of the fields of a rule."""
    names = "|".join(SUMMARY_FIELDS)
    return {
        "name": {"type": "string", "pattern": f"^{NAME.pattern}$", "not": {"enum": list(builtin_catalogue().by_id)}},
        "when": {"$ref": "#/$defs/condition"},
        "severity": _choice(Severity),
        "severity_when_enforcing": _choice(Severity),
        "summary": {**_TEXT, "pattern": rf"^([^{{}}]|\{{\{{|\}}\}}|\{{({names})\}})+$"},
        "reads": _choice(RowSelection),
        "for_steps": _STEPS,
        "for_seconds": _SECONDS,
        "clear_for_steps": _STEPS,
        "immune_steps": _STEPS,
        "labels": {"type": "object", "additionalProperties": _TEXT},
        "runbook": _TEXT,
        "is_symptom": {"type": "boolean"},
        "meaning": _TEXT,
    }


def _comparison(measure: str) -> Schema:
    """Return the schema of one kind of comparison, above or below."""
    two = {"type": "array", "minItems": 2, "maxItems": 2, "items": _SIGNAL}
    parts: dict[str, Schema] = {measure: two if measure == "ratio" else _SIGNAL}
    if measure in SPAN_MEASURES:
        parts["over"] = {"type": "integer", "minimum": 1, "maximum": MAX_SPAN_STEPS}
    limits = dict.fromkeys(("above", "below", "clear", "away_from"), _NUMBER)
    bound = {"oneOf": [{"required": ["above"]}, {"required": ["below"]}]}
    return {**_object({**parts, **limits}, *parts), **bound}


def _finding(spec: FindingSpec) -> Schema:
    """Return the schema of what may be changed of a finding: its severity, and the limits of its clauses."""
    limits = _object({clause.id: _NUMBER for clause in spec.clauses})
    return _object({"name": {"const": spec.id}, "severity": _choice(Severity), "limits": limits}, "name")


def _disabled() -> Schema:
    return _object({"name": _TEXT, "disabled": {"const": True}}, "name", "disabled")


def _single(name: str, value: Schema) -> Schema:
    return _object({name: value}, name)


def _object(parts: dict[str, Schema], *required: str) -> Schema:
    return {"type": "object", "properties": parts, "required": list(required), "additionalProperties": False}


def _choice(members: type[Severity] | type[RowSelection] | type[RunState]) -> Schema:
    return {"enum": [member.value for member in members]}
