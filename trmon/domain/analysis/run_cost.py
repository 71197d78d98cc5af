"""What a run's illness cost: rollouts that taught nothing, and GPU-hours."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from trmon.domain.analysis.logged_run import LoggedRun

SECONDS_PER_HOUR = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RunCost:
    """The cost of a run, NaN where it is not known.

    `wasted_rollouts` is the share of groups whose answers all had the same reward, which have no advantage; hours are
    GPU-hours: `gpu_hours` of all steps whose duration is known, `wasted_gpu_hours` their part in wasted rollouts,
    `ill_gpu_hours` those since the run broke. `timed_steps` is the share of steps whose duration is known.
    """

    wasted_rollouts: float
    timed_steps: float
    gpu_hours: float
    wasted_gpu_hours: float
    ill_gpu_hours: float


def run_cost(run: LoggedRun, *, broke_at: int | None, gpus: int | None) -> RunCost:
    """Return the cost of a run.

    Args: broke_at: the step at which it broke; gpus: how many it uses, None if not known, which leaves hours unknown.
    """
    wasted = run.history.values.get("zero_variance_groups", np.full(len(run.history), math.nan))
    hours = run.seconds * (math.nan if gpus is None else gpus / SECONDS_PER_HOUR)
    both = ~np.isnan(wasted) & ~np.isnan(hours)
    ill = np.zeros(len(hours), bool) if broke_at is None else np.asarray(run.history.steps) >= broke_at
    return RunCost(
        wasted_rollouts=float(np.nanmean(wasted)) if not np.isnan(wasted).all() else math.nan,
        timed_steps=float(np.mean(~np.isnan(run.seconds))),
        gpu_hours=_sum(hours),
        wasted_gpu_hours=float((wasted * hours)[both].sum()) if both.any() else math.nan,
        ill_gpu_hours=_sum(hours[ill]) if broke_at is not None else math.nan,
    )


def _sum(values: np.ndarray) -> float:
    known = values[~np.isnan(values)]
    return float(known.sum()) if len(known) else math.nan
