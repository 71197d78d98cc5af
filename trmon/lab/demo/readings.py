"""Reads the demo's runs through the public API."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from trmon_client.api import Service, ServiceError

SHOWN = (
    "reward_mean",
    "mismatch_kl_k3",
    "mismatch_chi2_token",
    "mismatch_ess_token",
    "mask_rate",
    "grad_norm",
)


@dataclass(frozen=True, slots=True)
class RunReading:
    """The state of a run: its steps, the displayed signals by step, its threshold as text, its firing rules."""

    state: str = "starting"
    steps: tuple[int, ...] = ()
    signals: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    threshold: str = ""
    firing: tuple[str, ...] = ()

    def last(self, name: str) -> float:
        """Return the newest value of a signal, NaN before the first."""
        values = self.signals.get(name, ())
        return values[-1] if values else math.nan


def read_run(service: Service, run: str) -> RunReading:
    """Return the current state of a run; empty before its first report or while the service is unreachable."""
    try:
        history = service.signals(run, SHOWN, points=service.max_rows)
        policy = service.policy(run).policy
        return RunReading(
            state=service.run(run).state,
            steps=tuple(history.step.tolist()),
            signals={name: tuple(history[name].tolist()) for name in SHOWN},
            threshold=f"{policy['name']}: {_bound(policy)}",
            firing=tuple(alert.rule for alert in service.alerts(run=run, state="firing")),
        )
    except ServiceError:
        return RunReading()


def _bound(policy: Mapping[str, Any]) -> str:
    """Return the bound of a policy's last criterion, the first one that a drift of the mean violates."""
    criterion = policy["criteria"][-1]
    bounds = ((criterion["lower"], "≥"), (criterion["upper"], "≤"))
    return ", ".join(f"{criterion['statistic']} {sign} {bound:.2g}" for bound, sign in bounds if bound is not None)
