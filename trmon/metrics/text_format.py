"""Sample lines in Prometheus' text format."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache

from trmon.domain.rules.rule import Rule
from trmon.domain.severity import Severity
from trmon.fleet.verdicts import JudgedRun
from trmon.fleet.views import thresholds_of
from trmon_client.core.policies.policy import Policy

MAX_CACHED = 4096
RUN_LABELS = "\0"
"""Placeholder for a run's own labels in lines that many runs share; no label contains it."""
HEALTH, OPERATION = "health", "operation"
"""The kinds of rules: alerts of the first join the incident of the run, those of the second are notified separately."""
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


@lru_cache(MAX_CACHED)
def threshold_lines(policy: Policy) -> str:
    """Return the bounds of a policy."""
    labels = ("statistic", "pair", "where", "bound")
    return "".join(
        _shared_line(
            "trmon_threshold", {"policy": policy.name, **{label: getattr(one, label) for label in labels}}, one.value
        )
        for one in thresholds_of(policy)
    )


def alert_lines(rules: Iterable[Rule], firing: Mapping[str, Severity]) -> str:
    """Return one line per firing rule. Args: firing: the severity of each firing rule's alert."""
    return "".join(
        _shared_line(
            "trmon_alert_active",
            {
                "rule": rule.name,
                "severity": firing[rule.name].value,
                "kind": HEALTH if rule.is_of_health else OPERATION,
            },
            1.0,
        )
        for rule in rules
        if rule.name in firing
    )


def verdict_lines(judged: JudgedRun, *, project: str, run: str) -> Iterator[tuple[str, str]]:
    """Yield metrics and their lines of a run's verdict: its cause and steps, and the state of its incident."""
    own, verdict = {"project": project, "run": run}, judged.verdict
    of_verdict = {"verdict": verdict.kind.value, "need": judged.need.value, "counts_as": judged.counts_as}
    of_verdict["cause"] = verdict.cause
    yield "trmon_run_verdict", sample_line("trmon_run_verdict", own | of_verdict, 1.0)
    for severity, n in Counter(listed.alert.severity for listed in judged.alerts).items():
        yield "trmon_run_alerts", sample_line("trmon_run_alerts", own | {"severity": severity.value}, n)
    if verdict.cause and verdict.since_step is not None:
        yield "trmon_run_since_step", sample_line("trmon_run_since_step", own, verdict.since_step)
    if judged.incident is None:
        return
    if judged.incident.last_good_step is not None:
        yield "trmon_run_last_good_step", sample_line("trmon_run_last_good_step", own, judged.incident.last_good_step)
    state = {"severity": judged.incident.severity.value, "state": _incident_state(judged)}
    yield "trmon_incident_state", sample_line("trmon_incident_state", own | state, 1.0)


def _incident_state(judged: JudgedRun) -> str:
    if judged.is_acked:
        return "acknowledged"
    return "open" if judged.incident is not None and judged.incident.is_open else "ended_with_run"


def format_number(value: float) -> str:
    """Return a number in the text format, NaN and infinities included."""
    text = repr(float(value))
    return _SPECIAL_NUMBERS.get(text, text)


def _shared_line(metric: str, labels: Mapping[str, str], value: float) -> str:
    return f"{metric}{{{RUN_LABELS},{format_labels(labels)}}} {format_number(value)}\n"
