"""Checked values of a YAML document; errors name the place, the expected and the given value."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, TypeVar

import yaml

from trmon.domain.model.errors import InvalidInput

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
