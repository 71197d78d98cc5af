"""The YAML files that test rules: series of signals, and the alerts they should raise; modelled on promtool."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trmon.domain.alerts.alert import AlertState
from trmon.domain.model.errors import InvalidInput, did_you_mean
from trmon.domain.rules import condition_yaml as values
from trmon.domain.rules.signal_reader import is_known_signal, signal_names
from trmon_client.core.column_schema import PAIRS, Pair

MAX_STEPS = 100_000
_NUMBER = r"(?:(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?|inf|nan)"
_TOKEN = re.compile(rf"(?P<first>_|[+-]?{_NUMBER})(?P<by>[+-]{_NUMBER})?(?:x(?P<times>\d{{1,6}}))?", re.IGNORECASE)
REPORTED_STATES = (AlertState.FIRING, AlertState.RESOLVED)


@dataclass(frozen=True, slots=True)
class ExpectedAlert:
    """An alert that is expected to fire or resolve at a step."""

    rule: str
    state: str
    step: int

    def __str__(self) -> str:
        return f"{self.rule} {self.state} at {self.step}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleTest:
    """A test: series with one value per step from step 0, and all expected alerts."""

    name: str
    series: Mapping[str, tuple[float, ...]]
    alerts: tuple[ExpectedAlert, ...]
    mode: str = "observe"
    primary: Pair = "mismatch"
    step_seconds: float = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleTestFile:
    """The tests of one file, and the file of the rules under test; None for the built-in rules."""

    rules: str | None
    tests: tuple[RuleTest, ...]


def parse_rule_tests(text: str) -> RuleTestFile:
    """Return the tests in a YAML document. Errors: InvalidInput with the place."""
    given = values.yaml_mapping(values.yaml_document(text, "tests"), "file")
    values.reject_unknown_keys(given, "file", "rules", "tests")
    tests = values.yaml_list(given.get("tests"), "tests")
    return RuleTestFile(
        rules=values.yaml_text(given["rules"], "rules") if "rules" in given else None,
        tests=tuple(_test(entry, f"tests[{i}]") for i, entry in enumerate(tests)),
    )


def series_values(text: str, place: str) -> tuple[float, ...]:
    """Return the values of a series in the notation of promtool.

    Args: text: numbers, `_` for a missing value, `a+bxn` for a, a + b, ... a + n b, and `axn` for a and n repeats.
    Errors: InvalidInput.
    """
    found: list[float] = []
    for token in text.split():
        match = _TOKEN.fullmatch(token)
        if match is None:
            raise InvalidInput(place, f"{token[:64]!r} must be a form of 1.5, _, 1x9 or 1+0.5x9 (1, 1.5, ... 5.5)")
        times = int(match["times"] or 0)
        if len(found) + times >= MAX_STEPS:
            raise InvalidInput(place, f"must have at most {MAX_STEPS} values")
        first = math.nan if match["first"] == "_" else float(match["first"])
        found += [first + i * float(match["by"] or 0) for i in range(times + 1)]
    return tuple(found)


def _test(entry: object, place: str) -> RuleTest:
    given = values.yaml_mapping(entry, place)
    fields: dict[str, Any] = {}
    for name, value in given.items():
        if name not in _FIELDS:
            raise InvalidInput(f"{place}.{name}", f"is not a field of a test; fields: {', '.join(_FIELDS)}")
        fields[name] = _FIELDS[name](value, f"{place}.{name}")
    for name in ("name", "series", "alerts"):
        if name not in fields:
            raise InvalidInput(f"{place}.{name}", "is required")
    return RuleTest(**fields)


def _series(value: object, place: str) -> dict[str, tuple[float, ...]]:
    given = values.yaml_mapping(value, place)
    for name in given:
        if not is_known_signal(name):
            raise InvalidInput(f"{place}.{name}", f"is not a known signal{did_you_mean(name, signal_names())}")
    return {name: series_values(_quoted(text, f"{place}.{name}"), f"{place}.{name}") for name, text in given.items()}


def _quoted(value: object, place: str) -> str:
    """Return a quoted string; YAML reads a bare 0x9 as a hexadecimal number."""
    if not isinstance(value, str):
        raise InvalidInput(place, f"must be quoted text, such as '0x9', and is {values.yaml_type_name(value)}")
    return value


def _alerts(value: object, place: str) -> tuple[ExpectedAlert, ...]:
    entries = [] if value == [] else values.yaml_list(value, place)
    return tuple(_expected(entry, f"{place}[{i}]") for i, entry in enumerate(entries))


def _expected(entry: object, place: str) -> ExpectedAlert:
    given = values.yaml_mapping(entry, place)
    values.reject_unknown_keys(given, place, "rule", "state", "step")
    return ExpectedAlert(
        rule=values.yaml_text(given.get("rule"), f"{place}.rule"),
        state=_one_of(*(state.value for state in REPORTED_STATES))(given.get("state"), f"{place}.state"),
        step=values.yaml_steps(given.get("step"), f"{place}.step"),
    )


def _one_of(*allowed: str) -> Any:
    def read(value: object, place: str) -> str:
        if value not in allowed:
            raise InvalidInput(place, f"must be one of {', '.join(allowed)}, and is {values.yaml_type_name(value)}")
        return str(value)

    return read


_FIELDS = {
    "name": values.yaml_text,
    "series": _series,
    "alerts": _alerts,
    "mode": _one_of("observe", "enforce"),
    "primary": _one_of(*PAIRS),
    "step_seconds": values.yaml_seconds,
}
