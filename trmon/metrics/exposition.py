"""Runs as Prometheus text: each run's lines are made once per change, then put together by metric."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, cached_property, lru_cache
from threading import Lock

from trmon.domain.adaptation.adaptation_setting import AdaptationMode
from trmon.domain.alerts.alert import AlertState
from trmon.domain.model.severity import Severity
from trmon.domain.rules.rule import Rule
from trmon.domain.runs.run import RunState
from trmon.views.run_view_cache import RunView, thresholds_of
from trmon_client.core.columns.schema import Pair
from trmon_client.core.policies.acceptance import Policy
from trmon_client.core.signals.batch_signals import SIGNALS, SignalSpec

Lines = Mapping[str, str]
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
REMEMBERED = 4096
_OWN = "\0"
"""Stands for a run's own labels in lines that many runs have in common; no label holds it."""
_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n", _OWN: "\N{REPLACEMENT CHARACTER}"})
_ODD_NUMBERS = {"nan": "NaN", "inf": "+Inf", "-inf": "-Inf"}

Firing = frozenset[tuple[str, Severity]]
"""The rules of which an alert fires on a run, each with its severity."""


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
        core = {_metric(spec) for spec in SIGNALS.values() if spec.core}
        self._extra_signals = [name for name in dict.fromkeys(extra_signals) if f"trmon_{name}" not in core]
        self._max_runs = max_runs
        self._max_scalars = max_scalars
        self._known: dict[int, tuple[RunView, Lines]] = {}
        self._of_rules: tuple[Rule, ...] = ()
        self._alert_lines: dict[tuple[str, Firing], str] = {}
        self._lock = Lock()

    def text(self, views: Sequence[RunView], *, project: str | None) -> str:
        """Return the lines of the newest runs, of one project or all, by metric, and how many were left out."""
        seen = [view for view in views if project in (None, view.run.key.project)]
        lines: defaultdict[str, list[str]] = defaultdict(list)
        with self._lock:
            self._heed_rules()
            self._forget_all_but({view.run.id for view in views})
            for view in seen[: self._max_runs]:
                for metric, text in self._lines(view).items():
                    lines[metric].append(text)
        lines["trmon_runs_omitted"] = [sample_line("trmon_runs_omitted", {}, max(0, len(seen) - self._max_runs))]
        return "".join(_group(metric, self._help[metric], texts) for metric, texts in lines.items())

    @cached_property
    def _help(self) -> Mapping[str, str]:
        of_signals = {_metric(spec): f"{spec.description}; {spec.unit}." for spec in SIGNALS.values() if spec.core}
        extra = {f"trmon_{name}": f"{SIGNALS[name].description}; {SIGNALS[name].unit}." for name in self._extra_signals}
        return {**extra, **of_signals, **FIXED_HELP}

    def _lines(self, view: RunView) -> Lines:
        known = self._known.get(view.run.id)
        if known is not None and known[0] is view:
            return known[1]
        own = _written({"project": view.run.key.project, "run": view.run.key.run})
        lines = {metric: text.replace(_OWN, own) for metric, text in self._shared(view) if text}
        for metric, label, value in self._numbers(view):
            lines[metric] = f"{lines.get(metric, '')}{metric}{{{own}{label}}} {_number(value)}\n"
        self._known[view.run.id] = (view, lines)
        return lines

    def _shared(self, view: RunView) -> Iterator[tuple[str, str]]:
        """Yield the lines that the run has in common with others, without its own labels."""
        yield "trmon_run_state", _state_lines(view.run.state)
        yield "trmon_adaptation", _mode_lines(view.adaptation)
        policy = view.policy.policy
        yield "trmon_threshold", _threshold_lines("trmon_threshold", policy.name, policy)
        if view.proposed is not None:
            yield "trmon_threshold_proposed", _threshold_lines("trmon_threshold_proposed", policy.name, view.proposed)
        firing = (alert for alert in view.alerts if alert.state is AlertState.FIRING)
        yield "trmon_alert_active", self._alerts(view.run.mode, frozenset((one.rule, one.severity) for one in firing))

    def _alerts(self, mode: str, firing: Firing) -> str:
        if (mode, firing) not in self._alert_lines:
            if len(self._alert_lines) >= REMEMBERED:
                self._alert_lines.clear()
            self._alert_lines[mode, firing] = _alert_lines(self._of_rules, mode, dict(firing))
        return self._alert_lines[mode, firing]

    def _numbers(self, view: RunView) -> Iterator[tuple[str, str, float]]:
        """Yield metrics, the label that each has beside the run's own, and values."""
        if view.run.last_report_at is not None:
            yield "trmon_last_report_timestamp_seconds", "", view.run.last_report_at
        if view.row is None:
            return
        yield "trmon_step", "", view.row.key.step
        signals = view.signals
        for metric, name in _core(view.row.primary_pair):
            if name in signals:
                yield metric, "", signals[name]
        for name in self._extra_signals:
            if name in signals:
                yield f"trmon_{name}", "", signals[name]
        for policy, rate in view.mask_rates.items():
            yield "trmon_mask_rate", _label("policy", policy), rate
        for kind, bound in view.bounds.items():
            yield "trmon_bound", _label("kind", kind), bound
        for name in sorted(view.scalars)[: self._max_scalars]:
            yield "trmon_scalar", _label("name", name), view.scalars[name]

    def _heed_rules(self) -> None:
        """Forget the lines of rules that are no longer in force."""
        if (rules := self._rules()) is not self._of_rules:
            self._of_rules = rules
            self._alert_lines.clear()
            self._known.clear()

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


@lru_cache(REMEMBERED)
def _label(name: str, value: str) -> str:
    """Return a label as it follows others; the same policies and scalars are on the lines of every run."""
    return "," + _written({name: value})


@cache
def _state_lines(state: RunState) -> str:
    return "".join(_shared_line("trmon_run_state", {"state": one.value}, one is state) for one in RunState)


@cache
def _mode_lines(mode: AdaptationMode) -> str:
    return "".join(_shared_line("trmon_adaptation", {"mode": one.value}, one is mode) for one in AdaptationMode)


@lru_cache(REMEMBERED)
def _threshold_lines(metric: str, name: str, policy: Policy) -> str:
    """Return the bounds of a policy under a policy's name."""
    labels = ("statistic", "pair", "where", "bound")
    return "".join(
        _shared_line(metric, {"policy": name, **{label: getattr(one, label) for label in labels}}, one.value)
        for one in thresholds_of(policy)
    )


def _alert_lines(rules: Iterable[Rule], mode: str, firing: Mapping[str, Severity]) -> str:
    severities = ((rule.name, firing.get(rule.name, rule.severity_in(mode))) for rule in rules)
    return "".join(
        _shared_line("trmon_alert_active", {"rule": rule, "severity": severity.value}, rule in firing)
        for rule, severity in severities
    )


def _shared_line(metric: str, labels: Mapping[str, str], value: float) -> str:
    return f"{metric}{{{_OWN},{_written(labels)}}} {_number(value)}\n"


@cache
def _core(primary: Pair) -> tuple[tuple[str, str], ...]:
    """Return the metrics of core signals and the signals' full names, on a run's primary pair."""
    core = (spec for spec in SIGNALS.values() if spec.core and spec.pair in (None, primary))
    return tuple((_metric(spec), spec.name) for spec in core)


def _number(value: float) -> str:
    text = repr(float(value))
    return _ODD_NUMBERS.get(text, text)
