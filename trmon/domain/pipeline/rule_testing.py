"""Tests of rules: read from YAML, passed through the pipeline, and the alerts that they raise."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Any

from trmon.domain.alerts.alert import AlertState, Transition
from trmon.domain.batches.batch import BatchRow
from trmon.domain.errors import InvalidInput, did_you_mean
from trmon.domain.identity import BatchKey, RunKey
from trmon.domain.pipeline.close_batch import evaluate_row
from trmon.domain.pipeline.draft import ClosingRow
from trmon.domain.pipeline.fold import fold_row, with_signals
from trmon.domain.pipeline.state import PassContext, PipelineState
from trmon.domain.pipeline.transition import apply_run_end
from trmon.domain.policies import PolicyRegistry, default_version
from trmon.domain.rules import condition_yaml as values
from trmon.domain.rules.condition import SCALAR_PREFIX, is_known_signal, is_scalar, series_names, signal_names
from trmon.domain.rules.rule import RuleSet
from trmon.domain.runs.run import Run, RunState
from trmon.domain.signals.derived_signals import SHADOW_PREFIX
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
    """A test: series with one value per step from step 0, None where it is missing, and all expected alerts."""

    name: str
    series: Mapping[str, tuple[float | None, ...]]
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


def series_values(text: str, place: str) -> tuple[float | None, ...]:
    """Return the values of a series in the notation of promtool.

    Args: text: numbers, `_` for a missing value (None), `a+bxn` for a, a + b, ... a + n b, `axn` for a and n repeats.
    Errors: InvalidInput.
    """
    found: list[float | None] = []
    for token in text.split():
        match = _TOKEN.fullmatch(token)
        if match is None:
            raise InvalidInput(place, f"{token[:64]!r} must be a form of 1.5, _, 1x9 or 1+0.5x9 (1, 1.5, ... 5.5)")
        times = int(match["times"] or 0)
        if len(found) + times >= MAX_STEPS:
            raise InvalidInput(place, f"must have at most {MAX_STEPS} values")
        if match["first"] == "_":
            found += [None] * (times + 1)
        else:
            found += [float(match["first"]) + i * float(match["by"] or 0) for i in range(times + 1)]
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


def _series(value: object, place: str) -> dict[str, tuple[float | None, ...]]:
    given, found = values.yaml_mapping(value, place), {}
    for name in given:
        if not is_known_signal(name):
            raise InvalidInput(f"{place}.{name}", f"is not a known signal{did_you_mean(name, signal_names())}")
    for name, text in given.items():
        here = f"{place}.{name}"
        if not isinstance(text, str):  # YAML reads a bare 0x9 as a hexadecimal number.
            raise InvalidInput(here, f"must be quoted text, such as '0x9', and is {values.yaml_type_name(text)}")
        found[name] = series_values(text, here)
    return found


def _alerts(value: object, place: str) -> tuple[ExpectedAlert, ...]:
    read_state, found = _one_of(*(state.value for state in REPORTED_STATES)), []
    for i, entry in enumerate([] if value == [] else values.yaml_list(value, place)):
        here = f"{place}[{i}]"
        given = values.yaml_mapping(entry, here)
        values.reject_unknown_keys(given, here, "rule", "state", "step")
        rule = values.yaml_text(given.get("rule"), f"{here}.rule")
        state = read_state(given.get("state"), f"{here}.state")
        found.append(ExpectedAlert(rule, state, values.yaml_steps(given.get("step"), f"{here}.step")))
    return tuple(found)


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


_RUN = Run(id=1, key=RunKey("rules", "test"), state=RunState.RUNNING, created_at=0.0, attempt_id=1)


def run_rule_test(test: RuleTest, rules: RuleSet) -> tuple[ExpectedAlert, ...]:
    """Return the alerts that the series of a test raise and resolve, in their order; incidents are left out."""
    pipeline_state, alerts = PipelineState(), []
    policies = PolicyRegistry.of(default_version(now=0.0))
    context = PassContext(run=replace(_RUN, mode=test.mode), policies=policies, rules=rules, now=0.0)
    for row, signals in _rows(test):
        folded = fold_row(ClosingRow(context=context, pipeline_state=pipeline_state, row=row))
        transitioned = evaluate_row(with_signals(folded, signals))
        pipeline_state = transitioned.pipeline_state
        alerts += list(_reported_alerts(transitioned.transitions))
    last, _ = apply_run_end(context=context, pipeline_state=pipeline_state, now=0.0)
    return (*alerts, *_reported_alerts(last))


def _rows(test: RuleTest) -> Iterator[tuple[BatchRow, dict[str, float]]]:
    """Yield one row per step, and the signals that the test gives."""
    names = [
        name if name in series_names() or is_scalar(name) or SHADOW_PREFIX in name else f"{test.primary}_{name}"
        for name in test.series
    ]
    for step, numbers in enumerate(zip_longest(*test.series.values())):
        given = {name: value for name, value in zip(names, numbers, strict=True) if value is not None}
        scalars = {name.removeprefix(SCALAR_PREFIX): value for name, value in given.items() if is_scalar(name)}
        signals = {name: value for name, value in given.items() if not is_scalar(name)}
        row = BatchRow(
            run_id=_RUN.id,
            key=BatchKey(1, step, None),
            ordinal=step + 1,
            closed_at=step * test.step_seconds,
            n_ranks=1,
            mode=test.mode,
            primary_pair=test.primary,
            signals=signals,
            scalars=scalars,
        )
        yield row, signals


def _reported_alerts(transitions: tuple[Transition, ...]) -> Iterator[ExpectedAlert]:
    for transition in transitions:
        alert, event = transition.alert, transition.event
        if alert is None or event is None or alert.is_incident or event.state not in REPORTED_STATES:
            continue
        yield ExpectedAlert(alert.rule, event.state.value, event.step)
