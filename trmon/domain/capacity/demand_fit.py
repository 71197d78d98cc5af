"""Fit the demand of each kind of work at a station to measured usage."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

TOLERANCE = 1e-10


@dataclass(frozen=True, slots=True)
class DemandFit:
    """Demands [ACTIVITIES], none negative, and the root mean square of the relative errors of the usage."""

    demands: Floats
    relative_error: float


def fit_demands(rates: Floats, used: Floats) -> DemandFit:
    """Return the demands whose sum over the rates comes closest to the usage, by relative error.

    Args: rates: work per second of each sample, [SAMPLES, ACTIVITIES]; used: positive usage per second, [SAMPLES].
    """
    relative = rates / used[:, None]
    scale = np.linalg.norm(relative, axis=0)
    scale[scale == 0] = 1.0
    scaled = relative / scale
    solution = nonnegative_least_squares(scaled, np.ones(len(used)))
    error = float(np.sqrt(np.mean((scaled @ solution - 1) ** 2)))
    return DemandFit(solution / scale, error)


def nonnegative_least_squares(matrix: Floats, target: Floats) -> Floats:
    """Return x >= 0 that minimizes |matrix @ x - target|.

    Source: Lawson and Hanson (1974), Solving Least Squares Problems, algorithm NNLS of chapter 23.
    """
    n = matrix.shape[1]
    solution, is_free = np.zeros(n), np.zeros(n, bool)
    for _ in range(3 * n):
        gradient = np.where(is_free, -np.inf, matrix.T @ (target - matrix @ solution))
        if gradient.max() <= TOLERANCE:
            break
        is_free[np.argmax(gradient)] = True
        solution = _feasible(matrix, target, solution, is_free)
    return solution


def _feasible(matrix: Floats, target: Floats, solution: Floats, is_free: npt.NDArray[np.bool_]) -> Floats:
    """Solve for the free variables, and step back to zero with those that would become negative."""
    while True:
        tried = np.zeros_like(solution)
        tried[is_free] = np.linalg.lstsq(matrix[:, is_free], target, rcond=None)[0]
        negative = is_free & (tried <= 0)
        if not negative.any():
            return tried
        share = (solution[negative] / (solution[negative] - tried[negative])).min()
        solution = solution + share * (tried - solution)
        is_free &= solution > TOLERANCE
        solution[~is_free] = 0.0
