"""The lag law: which learning rate a lag allows, and which lag a learning rate; conjectures, shown as such."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trmon.domain.diagnosis.history import config_number

ESS_LAG = 50.0
"""[DRIFT] conjecture 5: the largest lag that pays is at most 50 ess_seq."""
BATCH_RADIUS, CRITICAL_RADIUS = "lag_law.r_batch", "lag_law.r_crit"
UPDATE_NORM, HORIZON = "lag_law.update_norm", "lag_law.horizon"
"""Options of a run's configuration: the fitted radii, the norm of an update over its learning rate, and the updates."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LagLaw:
    """What the law says of a run; nan where something is not known.

    `lag` is S, the largest lag in versions; `horizon` is T, in updates; `lr` is eta. `lr_scale` is the smaller of the
    two radii over their drift: eta must stay well below it (the law says <<, and names no factor). `lag_scale` is the
    lag at which R_batch binds at this eta. `ess_ceiling` is the conjectured largest lag.
    """

    lag: float
    horizon: float
    lr: float
    update_norm: float
    s_eta: float
    t_eta: float
    lr_scale: float
    lag_scale: float
    ess_seq: float
    ess_ceiling: float


def lag_law(
    *,
    lag: float,
    horizon: float,
    lr: float,
    ess_seq: float,
    update_norm: float = math.nan,
    r_batch: float = math.nan,
    r_crit: float = math.nan,
) -> LagLaw:
    """Return the law eta << min(R_batch/(S G), R_crit/(T G)) for a run, and the ceiling 50 ess_seq of its lag.

    Args: lag: S, versions; horizon: T, updates; lr: eta; update_norm: G, the norm of an update over eta; r_batch,
    r_crit: the radii, fitted on runs of the same kind. nan where unknown: without both radii and G there is no scale.
    Source: arXiv 2607.01083, the two-constraint rule; [DRIFT] conjecture 5; formulas, section 11.
    """
    by_lag = _over(r_batch, lag * update_norm)
    by_horizon = _over(r_crit, horizon * update_norm)
    is_known = not (math.isnan(by_lag) or math.isnan(by_horizon))
    return LagLaw(
        lag=lag,
        horizon=horizon,
        lr=lr,
        update_norm=update_norm,
        s_eta=lag * lr,
        t_eta=horizon * lr,
        lr_scale=min(by_lag, by_horizon) if is_known else math.nan,
        lag_scale=_over(r_batch, lr * update_norm),
        ess_seq=ess_seq,
        ess_ceiling=ESS_LAG * ess_seq,
    )


def fitted_radii(config: Mapping[str, Any]) -> dict[str, float]:
    """Return r_batch, r_crit and update_norm as a run's configuration declares them; nan where it does not."""
    options = {"r_batch": BATCH_RADIUS, "r_crit": CRITICAL_RADIUS, "update_norm": UPDATE_NORM}
    found = {name: config_number(config, option) for name, option in options.items()}
    return {name: math.nan if value is None or value <= 0 else value for name, value in found.items()}


def _over(radius: float, drift: float) -> float:
    """Return radius/drift; infinite where nothing drifts."""
    if math.isnan(radius) or math.isnan(drift):
        return math.nan
    return math.inf if drift == 0 else radius / drift
