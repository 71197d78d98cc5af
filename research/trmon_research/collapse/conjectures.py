"""What the runs say of the conjectures of [DRIFT] at this scale: measured facts, each with its numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from statistics import median

import numpy as np

from trmon_research.collapse.markdown import table
from trmon_research.collapse.stored_runs import StoredRun

LAGS = ((0, 0), (1, 7), (8, 15), (16, 99))
RATES = ((0.0, 7e-4), (7e-4, 1.2e-3), (1.2e-3, 1.0))
KL_BUDGETS = (1e-4, 1e-3, 1e-2, 1e-1)


def lag_law(runs: Sequence[StoredRun]) -> list[str]:
    """Return the collapses of the runs with stale rollouts by their largest lag and their learning rate."""
    stale = [run for run in runs if run.config.mechanism in ("staleness", "healthy")]
    rows = [
        [
            f"{low} to {high}" if high < 99 else f"{low} and more",
            *(
                _share([run for run in stale if low <= _lag(run) <= high and slow <= _rate(run) < fast])
                for slow, fast in RATES
            ),
        ]
        for low, high in LAGS
    ]
    return table(
        ["largest lag", *(f"lr {slow:g} to {fast:g}" if fast < 1 else f"lr {slow:g} and more" for slow, fast in RATES)],
        rows,
    )


def router_bias(runs: Sequence[StoredRun]) -> list[str]:
    """Return how the mismatch grows with the share of flipped routers, over the updates of runs with experts."""
    noisy = [run for run in runs if run.config.mechanism == "router_noise" and not run.config.router_replay]
    edges = (1e-3, 1e-2, 0.05, 0.1, 0.2, 0.4, 1.0)
    flips = np.concatenate([run.columns["router_flip_rate"] for run in noisy]) if noisy else np.zeros(0)
    k3 = np.concatenate([run.columns["mismatch_kl_k3"] for run in noisy]) if noisy else np.zeros(0)
    rows = []
    for low, high in pairwise(edges):
        chosen = (flips >= low) & (flips < high)
        if chosen.any():
            ratio = np.median(k3[chosen] / flips[chosen])
            rows.append(
                [f"{low:g} to {high:g}", str(int(chosen.sum())), f"{np.median(k3[chosen]):.2g}", f"{ratio:.2g}"]
            )
    return table(["router flips", "updates", "median kl_k3", "median kl_k3 / flips"], rows)


def mismatch_budget(runs: Sequence[StoredRun]) -> list[str]:
    """Return the collapses and the end rewards of runs with an engine mismatch by its median over the run."""
    of_engines = [
        run for run in runs if run.config.mechanism in ("healthy", "quantisation", "router_noise", "sampling")
    ]
    rows, low = [], 0.0
    for high in (*KL_BUDGETS, float("inf")):
        chosen = [run for run in of_engines if low <= _median_k3(run) < high]
        gains = [run.record.outcome.last_reward - run.record.outcome.first_reward for run in chosen]
        rows.append([f"{low:g} to {high:g}", _share(chosen), f"{median(gains):+.3f}" if gains else "-"])
        low = high
    return table(["median mismatch kl_k3", "collapsed", "median gain of the evaluated reward"], rows)


def _share(runs: Sequence[StoredRun]) -> str:
    return f"{sum(run.has_collapsed for run in runs)} of {len(runs)}" if runs else "-"


def _lag(run: StoredRun) -> float:
    return max(run.config.engine.lag.start, run.config.engine.lag.end)


def _rate(run: StoredRun) -> float:
    return run.config.learning_rate.end


def _median_k3(run: StoredRun) -> float:
    return float(np.nanmedian(run.columns["mismatch_kl_k3"][: run.end] if run.end else np.zeros(1)))


CONJECTURES: tuple[tuple[str, Callable[[Sequence[StoredRun]], list[str]]], ...] = (
    ("Lag law: the lag that a run bears falls with its learning rate", lag_law),
    ("Router bias: the mismatch grows in proportion to the share of flipped routers", router_bias),
    ("Mismatch budget: below some mismatch nothing is lost", mismatch_budget),
)
"""What each conjecture says, and the table that the runs give."""
