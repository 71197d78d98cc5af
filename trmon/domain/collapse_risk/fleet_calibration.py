"""Calibrates the risk on a fleet's own ended runs: how often a collapse began where the model said so much."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from msgspec import structs

from trmon.domain.collapse_risk.risk_inputs import Values
from trmon.domain.collapse_risk.risk_model import HORIZON, FleetCalibration, RiskModel
from trmon.domain.errors import InvalidInput

LEAST_RUNS, LEAST_COLLAPSES = 40, 5
WARNED, PAGED = 0.1, 0.05
"""The shares of the runs without a collapse that reach the two thresholds."""
DRAWS, INTERVAL = 400, (5, 95)
POINTS, EVERY = 50, 10
DIGITS = 5


@dataclass(frozen=True)
class RiskCourse:
    """An ended run: the risk at each step before its collapse, NaN where the model was silent; None without one."""

    steps: Sequence[int]
    risks: Sequence[float]
    onset: int | None

    @property
    def moments(self) -> Values:
        """Return the risk at every tenth step with one, and whether a collapse began within 200 steps, [M, 2]."""
        known = [
            (risk, self.onset is not None and self.onset - step <= HORIZON)
            for step, risk in zip(self.steps, self.risks, strict=True)
            if risk == risk
        ]
        return np.array(known[::EVERY]).reshape(-1, 2)

    @property
    def highest(self) -> float:
        """The highest risk, 0 where the model was always silent."""
        return max((risk for risk in self.risks if risk == risk), default=0.0)


def calibrate(model: RiskModel, courses: Sequence[RiskCourse], *, seed: int = 0) -> RiskModel:
    """Return a model whose risk is what became of these runs, by isotonic regression, with thresholds of their own.

    Args: model: not yet calibrated on a fleet; courses: at least 40, of which 5 collapsed and 5 did not, each risk by
    this model. Errors: InvalidInput. Source: Zadrozny and Elkan (2002).
    """
    collapses = sum(course.onset is not None for course in courses)
    if len(courses) < LEAST_RUNS or not LEAST_COLLAPSES <= collapses <= len(courses) - LEAST_COLLAPSES:
        wanted = f"{LEAST_RUNS}, of which {LEAST_COLLAPSES} collapsed and {LEAST_COLLAPSES} did not"
        raise InvalidInput("SOURCE", f"has {len(courses)} ended runs, of which {collapses} collapsed; needs {wanted}")
    moments = [course.moments for course in courses]
    together = np.concatenate(moments)
    if not len(together):
        raise InvalidInput("SOURCE", "has no step at which the model was not silent")
    points = np.unique(np.quantile(together[:, 0], np.linspace(0.0, 1.0, POINTS)))
    rng = np.random.default_rng(seed)
    drawn = (np.concatenate([moments[i] for i in rng.integers(0, len(moments), len(moments))]) for _ in range(DRAWS))
    low, high = np.percentile([_isotonic(draw, points) for draw in drawn if len(draw)], INTERVAL, axis=0)
    probability = _isotonic(together, points)
    fleet = FleetCalibration(len(courses), collapses, *map(_digits, (points, probability, low, high)))
    well = sorted(
        float(np.interp(course.highest, fleet.risk, fleet.probability)) for course in courses if course.onset is None
    )
    warn_at, page_at = (float(np.nextafter(well[-int(share * len(well)) - 1], 1.0)) for share in (WARNED, PAGED))
    return RiskModel(structs.replace(model.file, fleet=fleet, warn_at=warn_at, page_at=page_at))


def _isotonic(moments: Values, points: Values) -> Values:
    """Return the rising shares of collapses at points, fitted by pooling adjacent violators. Args: moments: [M, 2]."""
    blocks: list[tuple[float, float, float]] = []  # The last risk, the number of collapses and of moments.
    for risk, begins in moments[np.argsort(moments[:, 0], kind="stable")].tolist():
        block = risk, begins, 1.0
        while blocks and (blocks[-1][0] == risk or blocks[-1][1] * block[2] >= block[1] * blocks[-1][2]):
            _, n_begin, n = blocks.pop()
            block = risk, block[1] + n_begin, block[2] + n
        blocks.append(block)
    ends, begin, n = np.array(blocks).T
    shares: Values = begin / n
    return shares[np.minimum(np.searchsorted(ends, points), len(ends) - 1)]


def _digits(values: Values) -> tuple[float, ...]:
    return tuple(float(f"{value:.{DIGITS}g}") for value in values.tolist())
