"""Caches the newest values of each active run, for /metrics and the API."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from threading import Lock
from typing import Literal

from trmon.domain.adaptation.proposal import AdaptationMode
from trmon.domain.advice.advise import Advice
from trmon.domain.alerts.alert import Alert
from trmon.domain.batches.batch import BatchRow
from trmon.domain.policies import PolicyVersion
from trmon.domain.runs.run import Run
from trmon.domain.signals.derived_signals import SHADOW_PREFIX
from trmon_client.core.policies.policy import Policy

BOUNDS: Mapping[str, str] = {"adaptive": "bound_adaptive", "trpo": "bound_trpo"}
"""The kinds of error bound and the signals that hold them."""

Side = Literal["lower", "upper"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyThreshold:
    """One bound of a policy as written; `where` is empty for a bound without a condition."""

    statistic: str
    pair: str
    where: str
    bound: Side
    value: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RunView:
    """The values of one run at a time; `row` is its newest gauge row, None before the first batch closes.

    `proposed` is the policy that adaptation recommends in place of the current one, if any.
    """

    run: Run
    row: BatchRow | None
    policy: PolicyVersion
    alerts: tuple[Alert, ...]
    expected_step_seconds: float | None
    updated_at: float
    advice: Advice | None = None
    adaptation: AdaptationMode = AdaptationMode.OFF
    proposed: Policy | None = None

    @property
    def signals(self) -> Mapping[str, float]:
        """The gauge row's signals by full name."""
        return self.row.signals if self.row else {}

    @property
    def scalars(self) -> Mapping[str, float]:
        """The trainer's scalars in the gauge row."""
        return self.row.scalars if self.row else {}

    @property
    def mask_rates(self) -> Mapping[str, float]:
        """The share of rejected sequences by policy name: the active policy and each shadow."""
        rates = self.signals.items()
        shadows = {name.removeprefix(SHADOW_PREFIX): rate for name, rate in rates if name.startswith(SHADOW_PREFIX)}
        active = self.signals.get("mask_rate")
        return shadows if active is None else {**shadows, self.policy.policy.name: active}

    @property
    def bounds(self) -> Mapping[str, float]:
        """The error bounds by kind; NaN where they cannot be asserted."""
        return {kind: self.signals[name] for kind, name in BOUNDS.items() if name in self.signals}


class RunViewCache:
    """The views of active runs; may be read and written from any thread."""

    def __init__(self, *, idle_after_seconds: float = 3600.0) -> None:
        self._idle_after_seconds = idle_after_seconds
        self._views: dict[int, RunView] = {}
        self._lock = Lock()

    def put(self, view: RunView) -> None:
        """Store a run's view in place of the former one."""
        with self._lock:
            self._views[view.run.id] = view

    def remove(self, run_id: int) -> None:
        """Remove a run's view."""
        with self._lock:
            self._views.pop(run_id, None)

    def get(self, run_id: int) -> RunView | None:
        """Return a run's view, even if the run is idle by now; None if there is none."""
        with self._lock:
            return self._views.get(run_id)

    def active(self, now: float) -> list[RunView]:
        """Return the views of runs that have reported within the idle time, newest first; remove the others."""
        with self._lock:
            oldest = now - self._idle_after_seconds
            self._views = {id_: view for id_, view in self._views.items() if _last_report_at(view) >= oldest}
            return sorted(self._views.values(), key=_last_report_at, reverse=True)


def thresholds_of(policy: Policy) -> Iterator[PolicyThreshold]:
    """Yield the bounds of a policy; of several on one statistic the tightest, as that one decides."""
    bounds: dict[tuple[str, str, str, Side], list[float]] = {}
    for criterion in policy.criteria:
        target = criterion.statistic, criterion.pair, criterion.where or ""
        if criterion.lower is not None:
            bounds.setdefault((*target, "lower"), []).append(criterion.lower)
        if criterion.upper is not None:
            bounds.setdefault((*target, "upper"), []).append(criterion.upper)
    for (statistic, pair, where, side), values in bounds.items():
        tightest = max(values) if side == "lower" else min(values)
        yield PolicyThreshold(statistic=statistic, pair=pair, where=where, bound=side, value=tightest)


def _last_report_at(view: RunView) -> float:
    return view.run.created_at if view.run.last_report_at is None else view.run.last_report_at
