"""Exposes runs as Prometheus text: formats the lines of a run once per change, then groups them by metric.

What holds of few runs has no series for the others: alerts that do not fire, the states that a run is not in.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, cached_property, lru_cache
from threading import Lock
from types import MappingProxyType

from trmon.domain.alerts.alert import Alert, AlertState
from trmon.domain.collapse_risk.risk_reading import RISK
from trmon.domain.findings.verdict import COLLAPSE
from trmon.domain.incidents.incident import CAUSE_LABEL
from trmon.domain.pipeline.publish import RunView
from trmon.domain.rules.rule import Rule, RuleSet
from trmon.domain.severity import Severity
from trmon.domain.signals.derived_signals import DERIVED
from trmon.fleet.verdicts import JudgedRun
from trmon.fleet.views import thresholds_of
from trmon_client.core.column_schema import Pair
from trmon_client.core.policies.policy import Policy
from trmon_client.core.signals.batch_signals import SIGNALS, SignalSpec

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


Lines = Mapping[str, str]
"""Sample lines by metric."""
FIXED_HELP: dict[str, str] = {
    "trmon_step": "Newest closed step of the run.",
    "trmon_mask_rate": "Fraction of the newest gauge row's sequences that a policy rejects, active or shadow.",
    "trmon_collapse_risk": "Probability that a collapse begins within 200 steps, not calibrated for your trainer "
    "unless `trmon risk calibrate` did; absent where the predictor is silent, and once the reward has collapsed.",
    "trmon_threshold": "A bound of the active policy.",
    "trmon_bound": "An error bound of the newest gauge row, in units of reward; NaN if it cannot be asserted.",
    "trmon_alert_active": "1 while an alert of the rule fires on the run; those of kind health join its incident.",
    "trmon_incident_since_step": "Step at which the open incident of the run began; absent if none is open.",
    "trmon_incident_state": "1 for the state of the run's incident: open, acknowledged, or ended with the run.",
    "trmon_run_state": "1 for the run's state.",
    "trmon_run_verdict": "1 for the run's verdict, how soon to investigate it (need), what leads it (cause), and under "
    "which words the run is counted (counts_as).",
    "trmon_run_alerts": "Alerts that fire on the run; an open incident counts once, with all that joined it.",
    "trmon_run_since_step": "Step at which began what the verdict names; absent without a problem.",
    "trmon_run_last_good_step": "Last good step before the incident; absent without one, or if it began with the run.",
    "trmon_last_report_timestamp_seconds": "When the run's newest report was received, on the service's clock.",
    "trmon_runs_omitted": "Active runs that are omitted because of the limit on runs.",
    "trmon_scalar": "A scalar that the trainer logs.",
}
FiringRules = frozenset[tuple[str, Severity]]
"""The rules whose alerts fire on a run, each with the alert's severity."""


class Exposition:
    """Formats the runs of /metrics, up to a limit; thread-safe."""

    def __init__(
        self,
        *,
        rules: Callable[[], RuleSet],
        extra_signals: tuple[str, ...],
        max_runs: int,
        max_scalars: int,
    ) -> None:
        self._rules = rules
        usual = {_metric(spec) for spec in SIGNALS.values() if spec.core} | FIXED_HELP.keys()
        self._extra_signals = [name for name in dict.fromkeys(extra_signals) if f"trmon_{name}" not in usual]
        self._max_runs = max_runs
        self._max_scalars = max_scalars
        self._cached: dict[int, tuple[RunView, Lines]] = {}
        self._cached_rules: RuleSet | None = None
        self._alert_lines: dict[FiringRules, str] = {}
        self._lock = Lock()

    def shown(self, views: Sequence[RunView], *, project: str | None) -> tuple[list[RunView], int]:
        """Return the newest runs of a project (None: all), and the number of omitted ones."""
        visible = [view for view in views if project in (None, view.run.key.project)]
        return visible[: self._max_runs], max(0, len(visible) - self._max_runs)

    def text(
        self, views: Sequence[RunView], *, project: str | None, verdicts: Mapping[int, JudgedRun] = MappingProxyType({})
    ) -> str:
        """Return the lines of the newest runs of a project (None: all) by metric, and the number of omitted runs.

        Args: verdicts: by run id; a run without one has no line of it.
        """
        shown, n_omitted = self.shown(views, project=project)
        lines: defaultdict[str, list[str]] = defaultdict(list)
        with self._lock:
            self._refresh_rules()
            for run_id in self._cached.keys() - {view.run.id for view in views}:
                del self._cached[run_id]
            for view in shown:
                for metric, text in self._lines(view).items():
                    lines[metric].append(text)
                if (judged := verdicts.get(view.run.id)) is not None:
                    for metric, text in verdict_lines(judged, project=view.run.key.project, run=view.run.key.run):
                        lines[metric].append(text)
        lines["trmon_runs_omitted"] = [sample_line("trmon_runs_omitted", {}, n_omitted)]
        return "".join(metric_block(metric, self._help[metric], texts) for metric, texts in lines.items())

    @cached_property
    def _help(self) -> Mapping[str, str]:
        shown = {_metric(spec): spec for spec in SIGNALS.values() if spec.core}
        shown |= {f"trmon_{name}": SIGNALS.get(name) or DERIVED[name] for name in self._extra_signals}
        return {**{name: f"{spec.description}; {spec.unit}." for name, spec in shown.items()}, **FIXED_HELP}

    def _lines(self, view: RunView) -> Lines:
        cached = self._cached.get(view.run.id)
        if cached is not None and cached[0] is view:
            return cached[1]
        own = format_labels({"project": view.run.key.project, "run": view.run.key.run})
        lines = {metric: text.replace(RUN_LABELS, own) for metric, text in self._shared_lines(view) if text}
        for metric, label, value in self._values(view):
            lines[metric] = f"{lines.get(metric, '')}{metric}{{{own}{label}}} {format_number(value)}\n"
        self._cached[view.run.id] = (view, lines)
        return lines

    def _shared_lines(self, view: RunView) -> Iterator[tuple[str, str]]:
        """Yield metrics and their lines that runs share, with a placeholder for the run's own labels."""
        yield "trmon_threshold", threshold_lines(view.policy.policy)
        firing = (alert for alert in view.alerts if alert.state is AlertState.FIRING)
        yield (
            "trmon_alert_active",
            self._cached_alert_lines(frozenset((one.rule, one.severity) for one in firing)),
        )

    def _cached_alert_lines(self, firing: FiringRules) -> str:
        if firing not in self._alert_lines:
            if len(self._alert_lines) >= MAX_CACHED:
                self._alert_lines.clear()
            self._alert_lines[firing] = alert_lines(self._rules().rules, dict(firing))
        return self._alert_lines[firing]

    def _values(self, view: RunView) -> Iterator[tuple[str, str, float]]:
        """Yield metrics, the labels that each has besides the run's own, and values."""
        yield "trmon_run_state", label_suffix("state", view.run.state.value), 1.0
        if view.run.last_report_at is not None:
            yield "trmon_last_report_timestamp_seconds", "", view.run.last_report_at
        for alert in view.alerts:
            if alert.is_incident and alert.state is AlertState.FIRING:
                yield "trmon_incident_since_step", _incident_labels(alert), alert.since_step
        if view.row is None:
            return
        yield "trmon_step", "", view.row.key.step
        signals = view.signals
        for metric, name in _core_metrics(view.row.primary_pair):
            if name in signals:
                yield metric, "", signals[name]
        for name in self._extra_signals:
            if name in signals:
                yield f"trmon_{name}", "", signals[name]
        # Once the reward has collapsed, its prediction means nothing.
        collapses = (alert for alert in view.alerts if alert.rule == COLLAPSE)
        if RISK in signals and not any(alert.state is AlertState.FIRING for alert in collapses):
            yield "trmon_collapse_risk", "", signals[RISK]
        for policy, rate in view.mask_rates.items():
            yield "trmon_mask_rate", label_suffix("policy", policy), rate
        for kind, bound in view.bounds.items():
            yield "trmon_bound", label_suffix("kind", kind), bound
        for name in sorted(view.scalars)[: self._max_scalars]:
            yield "trmon_scalar", label_suffix("name", name), view.scalars[name]

    def _refresh_rules(self) -> None:
        """Drop the cached lines if the active rules have changed."""
        if (rules := self._rules()) is not self._cached_rules:
            self._cached_rules = rules
            self._alert_lines.clear()
            self._cached.clear()


def _incident_labels(alert: Alert) -> str:
    """Return the labels of an incident, which follow others."""
    return "," + format_labels({"severity": alert.severity.value, "cause": alert.labels.get(CAUSE_LABEL, "")})


def _metric(spec: SignalSpec) -> str:
    return f"trmon_{spec.stem}"


@cache
def _core_metrics(primary: Pair | None) -> tuple[tuple[str, str], ...]:
    """Return the metrics of the core signals on a primary pair, if there is one, each with the signal's full name."""
    core = (spec for spec in SIGNALS.values() if spec.core and spec.pair in (None, primary))
    return tuple((_metric(spec), spec.name) for spec in core)
