"""The signals that the model of collapse reads, and how each is scaled before its history is taken."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np
import numpy.typing as npt

from trmon.domain.collapse_risk.stored_precision import COARSE_BITS, FINE_BITS, StoredPrecision

Numbers = Mapping[str, float]
"""The signals and scalars of a step by name."""
Values = npt.NDArray[np.float64]


class Scale(Enum):
    """How a signal is scaled; the names say of what the logarithm is taken."""

    PLAIN = "plain"
    LOG = "log"
    LOG_ONE_MINUS = "log_one_minus"
    LOG_DISTANCE_TO_ONE = "log_distance_to_one"


@dataclass(frozen=True, slots=True, kw_only=True)
class RiskInput:
    """One signal: its name, its scale, and the size below which differences of a logarithm do not matter.

    `has_level`: its size means the same in every run, so that the model may read it beside its changes. `of_updates`:
    the optimizer steps of a training step measure it, not its rollout. `of_engines`: it is read of the mismatch pair,
    else of the total. `is_near_one`: its distance to 1 matters, so that it is read in more digits.
    """

    name: str
    scale: Scale = Scale.LOG
    smallest: float = 1e-6
    has_level: bool = False
    of_updates: bool = False
    of_engines: bool = False
    is_near_one: bool = False

    @property
    def sources(self) -> tuple[str, str]:
        """The signal that has its value, and the one that has it without the first."""
        return (f"mismatch_{self.name}", f"total_{self.name}") if self.of_engines else (self.name, self.name)


def _engines(stem: str, *, scale: Scale = Scale.LOG, smallest: float = 1e-6, is_near_one: bool = False) -> RiskInput:
    return RiskInput(
        name=stem, scale=scale, smallest=smallest, has_level=True, of_engines=True, is_near_one=is_near_one
    )


def _updates(name: str, *, scale: Scale = Scale.LOG, smallest: float = 1e-6) -> RiskInput:
    return RiskInput(name=name, scale=scale, smallest=smallest, has_level=True, of_updates=True)


REWARD, REWARD_STD = "reward_mean", "reward_std"
INPUTS: tuple[RiskInput, ...] = (
    RiskInput(name=REWARD, scale=Scale.PLAIN),
    RiskInput(name=REWARD_STD, scale=Scale.PLAIN),
    RiskInput(name="zero_variance_groups", scale=Scale.PLAIN, has_level=True),
    RiskInput(name="effective_signal", smallest=1e-9),
    RiskInput(name="sampled_entropy", smallest=1e-3),
    RiskInput(name="response_length_mean", smallest=1e-3),
    RiskInput(name="length_limit_share", scale=Scale.PLAIN, has_level=True),
    RiskInput(name="reward_length_corr", scale=Scale.PLAIN, has_level=True),
    RiskInput(name="grad_norm", smallest=1e-12),
    RiskInput(name="lr", smallest=1e-15),
    _engines("kl_k3", smallest=1e-7),
    _engines("chi2_token_p95", smallest=1e-5),
    _engines("ess_token", scale=Scale.LOG_ONE_MINUS, is_near_one=True),
    _engines("ess_seq", scale=Scale.LOG_ONE_MINUS, smallest=1e-5),
    _engines("prob_pearson", scale=Scale.LOG_ONE_MINUS, is_near_one=True),
    _engines("prob_diff_mean", smallest=1e-5),
    _engines("ratio_mean", scale=Scale.LOG_DISTANCE_TO_ONE, smallest=1e-5, is_near_one=True),
    RiskInput(name="saturated_fraction", smallest=1e-4, has_level=True),
    RiskInput(name="router_flip_rate", smallest=1e-4, has_level=True),
    RiskInput(name="version_lag_mean", smallest=1.0, has_level=True),
    _updates("staleness_kl_k3"),
    _updates("staleness_abs_log_ratio_max", smallest=1e-4),
    _updates("staleness_ess_seq", scale=Scale.LOG_ONE_MINUS, smallest=1e-5),
    _updates("clip_fraction", smallest=1e-4),
)
"""The inputs in the order of the history's columns; a model reads some of them."""
INPUT_NAMES = tuple(given.name for given in INPUTS)
N_INPUTS = len(INPUTS)
OF_UPDATES = slice(next(place for place, given in enumerate(INPUTS) if given.of_updates), N_INPUTS)
"""The inputs that updates measure are the last ones."""

_SOURCES = tuple(given.sources for given in INPUTS)
_PRECISION = StoredPrecision([FINE_BITS if given.is_near_one else COARSE_BITS for given in INPUTS])
_SMALLEST = np.array([given.smallest for given in INPUTS])
_IS_PLAIN, _IS_ONE_MINUS, _IS_DISTANCE = (
    np.array([given.scale is scale for given in INPUTS])
    for scale in (Scale.PLAIN, Scale.LOG_ONE_MINUS, Scale.LOG_DISTANCE_TO_ONE)
)


def read_inputs(numbers: Numbers, *, of_updates: Sequence[float] | None = ()) -> Values:
    """Return the values of a step as they are, [INPUTS]; NaN where there is none.

    Args: of_updates: values in place of the step's own for the inputs that updates measure; empty: the step's own;
    None: they are not known.
    """
    values = np.array(_read(numbers, _SOURCES))
    if of_updates is None:
        values[OF_UPDATES] = math.nan
    elif of_updates:
        values[OF_UPDATES] = of_updates
    return values


def read_updates(numbers: Numbers) -> tuple[float, ...]:
    """Return the values of the inputs that updates measure, as they are."""
    return tuple(_read(numbers, _SOURCES[OF_UPDATES]))


def _read(numbers: Numbers, sources: Sequence[tuple[str, str]]) -> list[float]:
    get = numbers.get
    return [get(first, get(second, math.nan)) for first, second in sources]


def scaled(values: Values) -> Values:
    """Return values [..., INPUTS] in the stored precision and on the scale of each; NaN for what is not finite."""
    stored = _PRECISION.rounded(values).astype(np.float64)
    finite = np.where(np.isfinite(stored), stored, np.nan)
    size = np.where(_IS_ONE_MINUS, 1.0 - finite, np.where(_IS_DISTANCE, np.abs(finite - 1.0), finite))
    return np.where(_IS_PLAIN, finite, np.log(np.maximum(size, 0.0) + _SMALLEST))
