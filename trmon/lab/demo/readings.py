"""Reads the demo's runs through the public API."""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass, field
from typing import Any

import httpx

from trmon.domain.policies import CALIBRATION_AUTHOR

FIXED_POLICY = "trm"
SETTLED_STEPS = 80
"""The number of newest steps over which the mask rate is shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationSummary:
    """How a run was calibrated: the reasons of its calibrations, oldest first, and the bound in force, as text.

    Mask rates: `settled` is measured over the newest steps; `fixed` is what the fixed bounds would give over all stored
    steps.
    """

    reasons: tuple[str, ...]
    bound: str
    settled: float
    fixed: float


def calibration_lines(calibration: CalibrationSummary, *, run: str) -> list[str]:
    """Return the calibration as lines of text."""
    if not calibration.reasons:
        return [f"Calibrated: nothing. The {run} run was too short to measure its bounds."]
    return [
        f"Bounds of the {run} run, measured on its own first steps: {calibration.reasons[0]}.",
        f"  In force at the end: {calibration.bound}; {calibration.settled:.1%} of the last {SETTLED_STEPS} steps were "
        f"rejected. The fixed bounds of {FIXED_POLICY} would have rejected {calibration.fixed:.1%} of all its steps.",
    ]


SHOWN = (
    "reward_mean",
    "mismatch_kl_k3",
    "mismatch_chi2_token",
    "mismatch_ess_token",
    "mask_rate",
    "grad_norm",
)
MAX_POINTS = 10_000
MAX_WHATIF_STEPS = 1000


@dataclass(frozen=True, slots=True)
class RunReading:
    """The state of a run: its steps, the displayed signals by step, its threshold as text, its alerts, newest first."""

    state: str = "starting"
    steps: tuple[int, ...] = ()
    signals: dict[str, tuple[float, ...]] = field(default_factory=dict)
    threshold: str = ""
    alerts: tuple[dict[str, Any], ...] = ()

    @property
    def firing(self) -> tuple[str, ...]:
        """The rules that are firing."""
        return tuple(alert["rule"] for alert in self.alerts if alert["state"] == "firing")

    def last(self, name: str) -> float:
        """Return the newest value of a signal, NaN before the first."""
        values = self.signals.get(name, ())
        return values[-1] if values else math.nan


class RunReader:
    """Reads the runs of one project from the service."""

    def __init__(self, url: str, *, project: str) -> None:
        self.url = url
        self._http = httpx.Client(base_url=f"{url}/api/v1", timeout=60.0)
        self._project = project

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def read(self, run: str) -> RunReading:
        """Return the current state of a run; empty before its first report or while the service is unreachable."""
        try:
            at = f"/runs/{self._project}/{run}"
            series = self._get(f"{at}/signals", names=",".join(SHOWN), points=MAX_POINTS)
            policy = self._get(f"{at}/policy")["policy"]
            return RunReading(
                state=self._get(at)["state"],
                steps=tuple(series["step"]),
                signals={name: tuple(map(_number, band["last"])) for name, band in series["signals"].items()},
                threshold=f"{policy['name']}: {_bound(policy)}",
                alerts=tuple(self._get("/alerts", project=self._project, run=run)["items"]),
            )
        except (httpx.TransportError, httpx.HTTPStatusError):
            return RunReading()

    def calibrated(self, run: str, reading: RunReading) -> CalibrationSummary:
        """Return how a run's bounds were calibrated."""
        versions = self._versions(run)
        made = [version["reason"] for version in reversed(versions) if version["author"] == CALIBRATION_AUTHOR]
        question = {"policy": FIXED_POLICY, "max_steps": MAX_WHATIF_STEPS}
        answer = self._http.post(f"/runs/{self._project}/{run}/whatif", json=question).raise_for_status()
        return CalibrationSummary(
            reasons=tuple(made),
            bound=_bound(versions[0]["policy"]),
            settled=statistics.fmean(reading.signals["mask_rate"][-SETTLED_STEPS:]),
            fixed=float(answer.json()["total"]["mask_rate"]),
        )

    def _versions(self, run: str) -> list[dict[str, Any]]:
        path, versions = f"/runs/{self._project}/{run}/policy/history", []
        page: dict[str, Any] = {"next": ""}
        while page["next"] is not None:
            page = self._get(path, **({"after": page["next"]} if page["next"] else {}))
            versions += page["items"]
        return versions

    def _get(self, path: str, **query: Any) -> Any:
        return self._http.get(path, params=query).raise_for_status().json()


def _number(value: Any) -> float:
    return math.nan if value is None else float(value)


def _bound(policy: dict[str, Any]) -> str:
    """Return the bound of a policy's last criterion, the first one that a drift of the mean violates."""
    criterion = policy["criteria"][-1]
    bounds = ((criterion["lower"], "≥"), (criterion["upper"], "≤"))
    return ", ".join(f"{criterion['statistic']} {sign} {bound:.2g}" for bound, sign in bounds if bound is not None)
