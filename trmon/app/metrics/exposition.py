"""Runs as Prometheus text: each run's lines are made once per change, then put together by metric."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, cached_property, lru_cache
from threading import Lock

from trmon.app.live import RunView
from trmon.domain.adaptation.setting import Mode
from trmon.domain.alerts.alert import AlertState
from trmon.domain.rules.rule import Rule
from trmon.domain.runs.run import RunState
from trmon_client.core.schema import Pair
from trmon_client.core.signals import SIGNALS, SignalSpec

Lines = Mapping[str, list[str]]
"""Sample lines by metric."""

FIXED_HELP: dict[str, str] = {
    "trmon_step": "Newest step of the run's trainer that is closed.",
    "trmon_mask_rate": "Share of the newest gauge row's sequences that a policy rejects, active or shadow.",
    "trmon_threshold": "A bound of the active policy.",
    "trmon_threshold_proposed": "Where adaptation would move a bound of the active policy; absent where it would not.",
    "trmon_adaptation": "1 for the mode in which the run's bounds are adapted.",
    "trmon_bound": "An error bound of the newest gauge row, in units of reward; NaN where it cannot be asserted.",
    "trmon_alert_active": "1 while a rule's alert fires on the run.",
    "trmon_run_state": "1 for the state the run is in.",
    "trmon_last_report_timestamp_seconds": "When the run's newest report came, on the service's clock.",
    "trmon_runs_omitted": "Active runs that are not shown because there are too many.",
    "trmon_scalar": "A number the trainer logs under its own name.",
}
REMEMBERED_LABELS = 4096
_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


class Exposition:
    """What /metrics shows of runs, and of how many; may be called from any thread."""

    def __init__(
        self,
        *,
        rules: Callable[[], tuple[Rule, ...]],
        extra_signals: tuple[str, ...],
        max_runs: int,
        max_scalars: int,
    ) -> None:
        self._rules = rules
        self._extra_signals = extra_signals
        self._max_runs = max_runs
        self._max_scalars = max_scalars
        self._known: dict[int, tuple[RunView, Lines]] = {}
        self._lock = Lock()

    def text(self, views: Sequence[RunView], *, project: str | None) -> str:
        """Return the lines of the newest runs, of one project or all, by metric, and how many were left out."""
        seen = [view for view in views if project in (None, view.run.key.project)]
        lines: defaultdict[str, list[str]] = defaultdict(list)
        with self._lock:
            self._forget_all_but({view.run.id for view in views})
            for view in seen[: self._max_runs]:
                for metric, samples in self._lines(view).items():
                    lines[metric] += samples
        lines["trmon_runs_omitted"] = [sample_line("trmon_runs_omitted", {}, max(0, len(seen) - self._max_runs))]
        return "".join(_group(metric, self._help[metric], samples) for metric, samples in lines.items())

    @cached_property
    def _help(self) -> Mapping[str, str]:
        of_signals = {_metric(spec): f"{spec.description}; {spec.unit}." for spec in SIGNALS.values() if spec.core}
        extra = {f"trmon_{name}": f"{SIGNALS[name].description}; {SIGNALS[name].unit}." for name in self._extra_signals}
        return {**extra, **of_signals, **FIXED_HELP}

    def _lines(self, view: RunView) -> Lines:
        known = self._known.get(view.run.id)
        if known is not None and known[0] is view:
            return known[1]
        lines: defaultdict[str, list[str]] = defaultdict(list)
        run = _written({"project": view.run.key.project, "run": view.run.key.run})
        for metric, labels, value in self._samples(view):
            own = f",{_remembered(tuple(labels.items()))}" if labels else ""
            lines[metric].append(f"{metric}{{{run}{own}}} {_number(value)}\n")
        self._known[view.run.id] = (view, lines)
        return lines

    def _samples(self, view: RunView) -> Iterator[tuple[str, dict[str, str], float]]:
        yield from self._run_samples(view)
        if view.row is None:
            return
        yield "trmon_step", {}, view.row.key.step
        for metric, name in _core(view.row.primary_pair):
            if name in view.signals:
                yield metric, {}, view.signals[name]
        for name in self._extra_signals:
            if name in view.signals:
                yield f"trmon_{name}", {}, view.signals[name]
        for policy, rate in view.mask_rates.items():
            yield "trmon_mask_rate", {"policy": policy}, rate
        for kind, bound in view.bounds.items():
            yield "trmon_bound", {"kind": kind}, bound
        for name in sorted(view.scalars)[: self._max_scalars]:
            yield "trmon_scalar", {"name": name}, view.scalars[name]

    def _run_samples(self, view: RunView) -> Iterator[tuple[str, dict[str, str], float]]:
        for state in RunState:
            yield "trmon_run_state", {"state": state.value}, float(view.run.state is state)
        if view.run.last_report_at is not None:
            yield "trmon_last_report_timestamp_seconds", {}, view.run.last_report_at
        for mode in Mode:
            yield "trmon_adaptation", {"mode": mode.value}, float(view.adaptation is mode)
        bounds = {"trmon_threshold": view.thresholds, "trmon_threshold_proposed": view.proposed_thresholds}
        for metric, thresholds in bounds.items():
            for threshold in thresholds:
                labels = {name: getattr(threshold, name) for name in ("statistic", "pair", "where", "bound")}
                yield metric, {"policy": view.policy.policy.name, **labels}, threshold.value
        firing = {alert.rule: alert for alert in view.alerts if alert.state is AlertState.FIRING}
        for rule in self._rules():
            alert = firing.get(rule.name)
            severity = alert.severity if alert else rule.severity_in(view.run.mode)
            labels = {"rule": rule.name, "severity": severity.value}
            yield "trmon_alert_active", labels, float(alert is not None)

    def _forget_all_but(self, shown: set[int]) -> None:
        for run_id in self._known.keys() - shown:
            self._known.pop(run_id, None)


def _metric(spec: SignalSpec) -> str:
    return f"trmon_{spec.stem}"


def _group(metric: str, about: str, samples: Sequence[str]) -> str:
    escaped = about.replace("\\", r"\\").replace("\n", r"\n")
    return f"# HELP {metric} {escaped}\n# TYPE {metric} gauge\n" + "".join(samples)


def sample_line(metric: str, labels: Mapping[str, str], value: float) -> str:
    """Return one line of Prometheus' text format, labels escaped."""
    return f"{metric}{{{_written(labels)}}} {_number(value)}\n" if labels else f"{metric} {_number(value)}\n"


def _written(labels: Mapping[str, str]) -> str:
    return ",".join(f'{name}="{label.translate(_ESCAPES)}"' for name, label in labels.items())


@lru_cache(REMEMBERED_LABELS)
def _remembered(labels: tuple[tuple[str, str], ...]) -> str:
    """The same rules, states and policies are on the lines of every run."""
    return _written(dict(labels))


@cache
def _core(primary: Pair) -> tuple[tuple[str, str], ...]:
    """Return the metrics of core signals and the signals' full names, on a run's primary pair."""
    core = (spec for spec in SIGNALS.values() if spec.core and spec.pair in (None, primary))
    return tuple((_metric(spec), spec.name) for spec in core)


def _number(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return repr(float(value))
