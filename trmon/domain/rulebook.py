"""Rules as YAML: read into Rules with errors that name the place, or taken from the built-in set."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from functools import cache
from importlib.resources import files
from typing import Any, TypeVar

import yaml

from trmon.domain.alerts import Severity
from trmon.domain.errors import InvalidInput
from trmon.domain.rules import AllOf, AnyOf, Bound, Comparison, Condition, InState, Reads, Rule, When
from trmon.domain.runs import RunState

_E = TypeVar("_E", bound=Enum)
_EXAMPLE = dict.fromkeys(("signal", "value", "threshold", "run", "step"), "")


@cache
def builtin() -> tuple[Rule, ...]:
    """Return the built-in rules. Source: formulas, section 9."""
    return parse(files("trmon.domain").joinpath("rulebook.yaml").read_text("utf-8"))


def parse(text: str) -> tuple[Rule, ...]:
    """Return the rules in a YAML list.

    Errors: InvalidInput naming the place, what was expected and what came.
    """
    try:
        entries = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise InvalidInput("rules", f"is not YAML: {error}") from error
    if not isinstance(entries, list):
        raise InvalidInput("rules", f"must be a list of rules, and is {_kind(entries)}")
    rules = tuple(_rule(entry, f"rules[{i}]") for i, entry in enumerate(entries))
    for i, rule in enumerate(rules):
        if any(rule.name == other.name for other in rules[:i]):
            raise InvalidInput(f"rules[{i}].name", f"{rule.name!r} is taken by an earlier rule")
    return rules


def _rule(entry: object, place: str) -> Rule:
    given = _mapping(entry, place)
    fields = {}
    for name, value in given.items():
        if name not in _FIELDS:
            raise InvalidInput(f"{place}.{name}", f"is not a part of a rule; parts: {', '.join(_FIELDS)}")
        fields[name] = _FIELDS[name](value, f"{place}.{name}")
    for name in ("name", "when", "severity", "summary"):
        if name not in fields:
            raise InvalidInput(f"{place}.{name}", "is required")
    return Rule(**fields)


def _when(value: object, place: str) -> When:
    given = _mapping(value, place)
    if "state" in given:
        _only(given, place, "state")
        return InState(_choice(RunState)(given["state"], f"{place}.state"))
    if "any" in given:
        _only(given, place, "any")
        return AnyOf(_parts(given["any"], f"{place}.any"))
    if "all" in given:
        _only(given, place, "all")
        return AllOf(_parts(given["all"], f"{place}.all"))
    return _comparison(given, place)


def _parts(value: object, place: str) -> tuple[Condition, ...]:
    if not isinstance(value, list) or not value:
        raise InvalidInput(place, f"must be a list of conditions, and is {_kind(value)}")
    parts = tuple(_when(part, f"{place}[{i}]") for i, part in enumerate(value))
    return tuple(_over_signals(part, f"{place}[{i}]") for i, part in enumerate(parts))


def _over_signals(part: When, place: str) -> Condition:
    if isinstance(part, InState):
        raise InvalidInput(place, "a state stands alone; it cannot be combined with signals")
    return part


def _comparison(given: Mapping[str, Any], place: str) -> Comparison:
    _only(given, place, "signal", "above", "below", "clear", "away_from")
    if "signal" not in given or ("above" in given) == ("below" in given):
        raise InvalidInput(place, "must have 'signal' with 'above' or 'below'; or 'any', 'all', or 'state'")
    bound = Bound.ABOVE if "above" in given else Bound.BELOW
    threshold = _number(given[bound.value], f"{place}.{bound.value}")
    clear = _number(given["clear"], f"{place}.clear") if "clear" in given else threshold
    if (clear > threshold) if bound is Bound.ABOVE else (clear < threshold):
        raise InvalidInput(f"{place}.clear", f"must not lie beyond the threshold {threshold:g}, and is {clear:g}")
    return Comparison(
        signal=_text(given["signal"], f"{place}.signal"),
        bound=bound,
        threshold=threshold,
        clear=clear,
        away_from=_number(given["away_from"], f"{place}.away_from") if "away_from" in given else None,
    )


def _mapping(value: object, place: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise InvalidInput(place, f"must be a mapping, and is {_kind(value)}")
    return value


def _only(given: Mapping[str, Any], place: str, *allowed: str) -> None:
    for name in given:
        if name not in allowed:
            raise InvalidInput(f"{place}.{name}", f"does not belong here; allowed: {', '.join(allowed)}")


def _text(value: object, place: str) -> str:
    if not isinstance(value, str) or not value:
        raise InvalidInput(place, f"must be a text, and is {_kind(value)}")
    return value


def _number(value: object, place: str) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or value != value:
        raise InvalidInput(place, f"must be a number, and is {_kind(value)}")
    return float(value)


def _seconds(value: object, place: str) -> float:
    seconds = _number(value, place)
    if seconds < 0:
        raise InvalidInput(place, f"must be zero or more seconds, and is {seconds:g}")
    return seconds


def _steps(value: object, place: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise InvalidInput(place, f"must be a whole number of steps, zero or more, and is {_kind(value)}")
    return value


def _labels(value: object, place: str) -> dict[str, str]:
    given = _mapping(value, place)
    return {name: _text(label, f"{place}.{name}") for name, label in given.items()}


def _summary(value: object, place: str) -> str:
    text = _text(value, place)
    try:
        text.format(**_EXAMPLE)
    except (LookupError, ValueError) as error:
        raise InvalidInput(place, f"may name {{{'}, {'.join(_EXAMPLE)}}} only: {error}") from error
    return text


def _choice(kind: type[_E]) -> Callable[[object, str], _E]:
    def read(value: object, place: str) -> _E:
        for member in kind:
            if member.value == value:
                return member
        allowed = ", ".join(str(member.value) for member in kind)
        raise InvalidInput(place, f"must be one of {allowed}, and is {_kind(value)}")

    return read


def _kind(value: object) -> str:
    return "nothing" if value is None else f"{type(value).__name__} {str(value)[:64]!r}"


_FIELDS: dict[str, Callable[[Any, str], Any]] = {
    "name": _text,
    "when": _when,
    "severity": _choice(Severity),
    "severity_when_enforcing": _choice(Severity),
    "summary": _summary,
    "reads": _choice(Reads),
    "for_steps": _steps,
    "for_seconds": _seconds,
    "clear_for_steps": _steps,
    "immune_steps": _steps,
    "labels": _labels,
    "runbook": _text,
}
