"""Sample lines in Prometheus' text format."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache, lru_cache

from trmon.domain.adaptation.adaptation_setting import AdaptationMode
from trmon.domain.model.severity import Severity
from trmon.domain.rules.rule import Rule
from trmon.domain.runs.run import RunState
from trmon.views.run_view_cache import thresholds_of
from trmon_client.core.policies.policy import Policy

MAX_CACHED = 4096
RUN_LABELS = "\0"
"""Placeholder for a run's own labels in lines that many runs share; no label contains it."""
HEALTH, OPERATION = "health", "operation"
"""The kinds of rules: alerts of the first join the incident of the run, those of the second stand for themselves."""
_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n", RUN_LABELS: "\N{REPLACEMENT CHARACTER}"})
_SPECIAL_NUMBERS = {"nan": "NaN", "inf": "+Inf", "-inf": "-Inf"}


def metric_block(metric: str, description: str, samples: Sequence[str]) -> str:
    """Return the help, type and sample lines of a gauge."""
    escaped = description.replace("\\", r"\\").replace("\n", r"\n")
    return f"# HELP {metric} {escaped}\n# TYPE {metric} gauge\n" + "".join(samples)


def sample_line(metric: str, labels: Mapping[str, str], value: float) -> str:
    """Return one sample line, with its labels escaped."""
    return (
        f"{metric}{{{format_labels(labels)}}} {format_number(value)}\n"
        if labels
        else f"{metric} {format_number(value)}\n"
    )


def format_labels(labels: Mapping[str, str]) -> str:
    """Return labels as they stand between braces."""
    return ",".join(f'{name}="{label.translate(_ESCAPES)}"' for name, label in labels.items())


@lru_cache(MAX_CACHED)
def label_suffix(name: str, value: str) -> str:
    """Return a label that follows others; cached, because many runs have the same policies and scalars."""
    return "," + format_labels({name: value})


@cache
def run_state_lines(state: RunState) -> str:
    """Return one line per run state, 1 for the given one."""
    return "".join(_shared_line("trmon_run_state", {"state": one.value}, one is state) for one in RunState)


@cache
def adaptation_mode_lines(mode: AdaptationMode) -> str:
    """Return one line per adaptation mode, 1 for the given one."""
    return "".join(_shared_line("trmon_adaptation", {"mode": one.value}, one is mode) for one in AdaptationMode)


@lru_cache(MAX_CACHED)
def threshold_lines(metric: str, name: str, policy: Policy) -> str:
    """Return the bounds of a policy, labelled with a policy name."""
    labels = ("statistic", "pair", "where", "bound")
    return "".join(
        _shared_line(metric, {"policy": name, **{label: getattr(one, label) for label in labels}}, one.value)
        for one in thresholds_of(policy)
    )


def alert_lines(rules: Iterable[Rule], mode: str, firing: Mapping[str, Severity]) -> str:
    """Return one line per rule, 1 for the firing ones. Args: firing: the severity of each firing rule's alert."""
    return "".join(
        _shared_line(
            "trmon_alert_active",
            {
                "rule": rule.name,
                "severity": firing.get(rule.name, rule.severity_in(mode)).value,
                "kind": HEALTH if rule.is_of_health else OPERATION,
            },
            rule.name in firing,
        )
        for rule in rules
    )


def format_number(value: float) -> str:
    """Return a number in the text format, NaN and infinities included."""
    text = repr(float(value))
    return _SPECIAL_NUMBERS.get(text, text)


def _shared_line(metric: str, labels: Mapping[str, str], value: float) -> str:
    return f"{metric}{{{RUN_LABELS},{format_labels(labels)}}} {format_number(value)}\n"
