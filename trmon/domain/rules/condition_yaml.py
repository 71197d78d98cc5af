"""Conditions in YAML: parsed with errors that name the place, and written back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, TypeVar

import yaml

from trmon.domain.errors import InvalidInput, did_you_mean
from trmon.domain.rules.condition import (
    NEWEST,
    AllOf,
    AnyOf,
    Comparison,
    InState,
    Measure,
    SignalAbsent,
    SignalCondition,
    SpanKind,
    ThresholdSide,
    TwoTrainersLive,
    When,
    is_known_signal,
    signal_names,
)
from trmon.domain.runs.run import RunState
from trmon.domain.signals.windows import MAX_SPAN_STEPS

SPAN_MEASURES: tuple[SpanKind, ...] = ("growth", "relative", "slope")
MEASURES = ("signal", *SPAN_MEASURES, "zscore", "ratio")
"""The keys that name the signal of a comparison; it has exactly one of them."""


def parse_condition(value: object, place: str) -> When:
    """Return a condition. Errors: InvalidInput with the place, the expected and the given value."""
    given = yaml_mapping(value, place)
    if any(name in given for name in MEASURES):
        return _comparison(given, place)
    for name, read in _KINDS.items():
        if name in given:
            reject_unknown_keys(given, place, name)
            return read(given[name], f"{place}.{name}")
    expected = ", ".join(repr(name) for name in (*MEASURES, *_KINDS))
    raise InvalidInput(place, f"must have one of {expected}, and has {', '.join(map(repr, given)) or 'nothing'}")


def condition_to_yaml(when: object) -> dict[str, Any]:
    """Return a condition as rule files write it."""
    match when:
        case AnyOf(parts):
            return {"any": [condition_to_yaml(part) for part in parts]}
        case AllOf(parts):
            return {"all": [condition_to_yaml(part) for part in parts]}
        case InState(state):
            return {"state": state.value}
        case TwoTrainersLive(seconds):
            return {"side_by_side": seconds}
        case SignalAbsent(signal):
            return {"absent": signal}
        case Comparison():
            away = {} if when.away_from is None else {"away_from": when.away_from}
            over = {"over": when.measure.over} if when.measure.over else {}
            named = [when.signal, when.measure.to] if when.measure.to else when.signal
            limits = {when.bound.value: when.threshold, "clear": when.clear}
            return {when.measure.kind: named, **over, **limits, **away}
        case _:
            raise TypeError(f"a rule's condition cannot be a {type(when).__name__}")


def _parts(value: object, place: str) -> tuple[SignalCondition, ...]:
    parts: list[SignalCondition] = []
    for i, given in enumerate(yaml_list(value, place)):
        part = parse_condition(given, f"{place}[{i}]")
        if not isinstance(part, SignalCondition):
            told = "conditions on the run itself cannot be combined with conditions on signals"
            raise InvalidInput(f"{place}[{i}]", told)
        parts.append(part)
    return tuple(parts)


def _comparison(given: Mapping[str, Any], place: str) -> Comparison:
    name = next(name for name in MEASURES if name in given)
    spans = ("over",) if name in SPAN_MEASURES else ()
    reject_unknown_keys(given, place, name, *spans, "above", "below", "clear", "away_from")
    if ("above" in given) == ("below" in given):
        raise InvalidInput(place, "must have either 'above' or 'below'")
    signal, measure = _measured(name, given, place)
    bound = ThresholdSide.ABOVE if "above" in given else ThresholdSide.BELOW
    threshold = yaml_number(given[bound.value], f"{place}.{bound.value}")
    clear = yaml_number(given["clear"], f"{place}.clear") if "clear" in given else threshold
    if (clear > threshold) if bound is ThresholdSide.ABOVE else (clear < threshold):
        raise InvalidInput(f"{place}.clear", f"must not be beyond the threshold {threshold:g}, and is {clear:g}")
    return Comparison(
        signal=signal,
        bound=bound,
        threshold=threshold,
        clear=clear,
        away_from=yaml_number(given["away_from"], f"{place}.away_from") if "away_from" in given else None,
        measure=measure,
    )


def _measured(name: str, given: Mapping[str, Any], place: str) -> tuple[str, Measure]:
    here = f"{place}.{name}"
    if name == "ratio":
        two = yaml_list(given[name], here)
        if len(two) != 2:
            raise InvalidInput(here, f"must be two signals, numerator and denominator, and has {len(two)}")
        return _signal(two[0], f"{here}[0]"), Measure("ratio", to=_signal(two[1], f"{here}[1]"))
    signal = _signal(given[name], here)
    kind = next((kind for kind in SPAN_MEASURES if kind == name), None)
    if kind is not None:
        if "over" not in given:
            raise InvalidInput(f"{place}.over", "is required: the number of steps")
        over = yaml_steps(given["over"], f"{place}.over")
        if not 1 <= over <= MAX_SPAN_STEPS:
            raise InvalidInput(f"{place}.over", f"must be 1 to {MAX_SPAN_STEPS} steps, and is {over}")
        return signal, Measure(kind, over=over)
    return signal, Measure("zscore") if name == "zscore" else NEWEST


def _signal(value: object, place: str) -> str:
    name = yaml_text(value, place)
    if not is_known_signal(name):
        raise InvalidInput(
            place,
            f"{name!r} is not a known signal{did_you_mean(name, signal_names())}; GET /api/v1/signals lists them; "
            f"a scalar of the trainer is written scalar:{name[:64]}",
        )
    return name


_KINDS: dict[str, Callable[[object, str], When]] = {
    "absent": lambda value, place: SignalAbsent(_signal(value, place)),
    "any": lambda value, place: AnyOf(_parts(value, place)),
    "all": lambda value, place: AllOf(_parts(value, place)),
    "state": lambda value, place: InState(yaml_enum(RunState)(value, place)),
    "side_by_side": lambda value, place: TwoTrainersLive(yaml_seconds(value, place)),
}
"""The conditions that have one key, by that key; comparisons have several."""


_E = TypeVar("_E", bound=Enum)


class _Loader(yaml.SafeLoader):
    """The safe loader, less aliases."""

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            raise yaml.composer.ComposerError(None, None, "aliases are not supported", self.get_mark())
        return super().compose_node(parent, index)


def yaml_document(text: str, place: str) -> object:
    """Return the parsed YAML document. Errors: InvalidInput, also for an alias: nested ones expand without a bound."""
    try:
        return yaml.load(text, _Loader)  # noqa: S506 - a safe loader
    except (yaml.YAMLError, ValueError, LookupError, RecursionError) as error:
        # The YAML constructors raise the latter, e.g. for an invalid date.
        raise InvalidInput(place, f"is not YAML: {error}") from error


def yaml_mapping(value: object, place: str) -> Mapping[str, Any]:
    """Return a mapping whose keys are text."""
    if not isinstance(value, dict):
        raise InvalidInput(place, f"must be a mapping, and is {yaml_type_name(value)}")
    for name in value:
        yaml_text(name, f"{place}.{name}")
    return value


def reject_unknown_keys(given: Mapping[str, Any], place: str, *allowed: str) -> None:
    """Raise InvalidInput if a key is not allowed."""
    for name in given:
        if name not in allowed:
            raise InvalidInput(f"{place}.{name}", f"is not allowed here; allowed: {', '.join(allowed)}")


def yaml_list(value: object, place: str) -> list[object]:
    """Return a list with at least one element."""
    if not isinstance(value, list) or not value:
        raise InvalidInput(place, f"must be a list with at least one element, and is {yaml_type_name(value)}")
    return value


def yaml_text(value: object, place: str) -> str:
    """Return a string with at least one character."""
    if not isinstance(value, str) or not value:
        raise InvalidInput(place, f"must be text, and is {yaml_type_name(value)}")
    return value


def yaml_flag(value: object, place: str) -> bool:
    """Return true or false. Errors: InvalidInput."""
    if not isinstance(value, bool):
        raise InvalidInput(place, f"must be true or false, and is {yaml_type_name(value)}")
    return value


def yaml_number(value: object, place: str) -> float:
    """Return a number; infinity is allowed, NaN is not."""
    if not isinstance(value, int | float) or isinstance(value, bool) or value != value:
        raise InvalidInput(place, f"must be a number, and is {yaml_type_name(value)}")
    try:
        return float(value)
    except OverflowError as error:
        raise InvalidInput(place, f"must be a number of at most 1.8e308, and is {yaml_type_name(value)}") from error


def yaml_seconds(value: object, place: str) -> float:
    """Return a number of seconds, zero or more."""
    given = yaml_number(value, place)
    if given < 0:
        raise InvalidInput(place, f"must be zero or more seconds, and is {given:g}")
    return given


def yaml_steps(value: object, place: str) -> int:
    """Return a number of steps, zero or more."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise InvalidInput(place, f"must be a whole number of steps, zero or more, and is {yaml_type_name(value)}")
    return value


def yaml_labels(value: object, place: str) -> dict[str, str]:
    """Return labels: text by name."""
    return {name: yaml_text(label, f"{place}.{name}") for name, label in yaml_mapping(value, place).items()}


def yaml_enum(members: type[_E]) -> Callable[[object, str], _E]:
    """Return a parser for the values of an enum."""

    def read(value: object, place: str) -> _E:
        for member in members:
            if member.value == value:
                return member
        allowed = ", ".join(str(member.value) for member in members)
        raise InvalidInput(place, f"must be one of {allowed}, and is {yaml_type_name(value)}")

    return read


def yaml_type_name(value: object) -> str:
    """Return the type and the start of a value for an error text."""
    return "nothing" if value is None else f"{type(value).__name__} {str(value)[:64]!r}"
