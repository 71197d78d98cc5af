"""Inputs of the model of collapse: the signals it reads, their history in a run, and its features."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

FLOAT32_MANTISSA_BITS = 23
ONE = np.uint32(1)


class StoredPrecision:
    """Rounds to a number of significant bits; what a rounding needs of it is computed once."""

    def __init__(self, significant_bits: Any) -> None:
        """Args: significant_bits: 2 to 23, a number or one for each value."""
        self._dropped = np.uint32(FLOAT32_MANTISSA_BITS + 1) - np.asarray(significant_bits, np.uint32)
        self._just_below_half = (ONE << (self._dropped - ONE)) - ONE

    def rounded(self, values: npt.NDArray[np.float64]) -> npt.NDArray[np.float32]:
        """Return values as float32, rounded half to even; NaN and infinity stay."""
        with np.errstate(over="ignore"):
            single = values.astype(np.float32)
        pattern = single.view(np.uint32)
        rounded = pattern + self._just_below_half + ((pattern >> self._dropped) & ONE)
        return np.where(np.isfinite(single), (rounded >> self._dropped << self._dropped).view(np.float32), single)


COARSE_BITS, FINE_BITS = 8, 16
"""The precision of a signal, in significant bits, and of one whose distance to 1 matters."""


Numbers = Mapping[str, float]
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


BASELINE_STEPS = 30
"""The first values of an input, which its later ones are compared with."""
SETTLING_STEPS = 10
"""Values after which extremes and the spread are taken, since the averages begin with a single value."""
FAST_STEPS, MIDDLE_STEPS, SLOW_STEPS = 10, 20, 50
AVERAGE_WEIGHTS = np.array([[2 / (steps + 1)] for steps in (FAST_STEPS, MIDDLE_STEPS, SLOW_STEPS)])
SPREAD_WEIGHT = 2 / (MIDDLE_STEPS + 1)
JUMP_MEMORY = 0.95
"""The share of the largest jump that is left a step later."""


class Statistic(IntEnum):
    """The values kept of each input; rows of the history's matrix."""

    COUNT = 0
    BASE_SUM = 1
    BASE_SUM_SQ = 2
    BASE_SPREAD_SUM = 3
    FAST = 4
    MIDDLE = 5
    SLOW = 6
    SPREAD = 7
    LARGEST = 8
    SMALLEST = 9
    JUMP = 10


SHAPE = (len(Statistic), N_INPUTS)


class InputHistory(msgspec.Struct, frozen=True):
    """The statistics of the inputs after a number of steps, as the bytes of a float64 matrix [Statistic, INPUTS]."""

    matrix: bytes = b""

    @property
    def statistics(self) -> Values:
        """The matrix [Statistic, INPUTS]; read-only."""
        return np.frombuffer(self.matrix).reshape(SHAPE) if self.matrix else np.zeros(SHAPE)

    def with_step(self, values: Values) -> InputHistory:
        """Return the history after one more step's scaled values [INPUTS]; an input that is NaN stays as it was."""
        return InputHistory(advanced(self.statistics, values).tobytes())


def advanced(before: Values, values: Values) -> Values:
    """Return the statistics [Statistic, INPUTS] after one more step's scaled values [INPUTS]."""
    known = np.isfinite(values)
    value = np.where(known, values, 0.0)
    count = before[Statistic.COUNT]
    is_first, has_settled = count == 0, count >= SETTLING_STEPS
    rise = np.where(is_first, 0.0, value - before[Statistic.SLOW])
    deviation = np.abs(rise)
    after = before.copy()
    after[Statistic.COUNT] += 1
    if (in_baseline := count < BASELINE_STEPS).any():
        after[Statistic.BASE_SUM] += in_baseline * value
        after[Statistic.BASE_SUM_SQ] += in_baseline * value * value
        after[Statistic.BASE_SPREAD_SUM] += (in_baseline & has_settled) * deviation
    averages = after[Statistic.FAST : Statistic.SLOW + 1]
    averages += np.where(is_first, 1.0, AVERAGE_WEIGHTS) * (value - averages)
    spread, middle = after[Statistic.SPREAD], after[Statistic.MIDDLE]
    spread += np.where(has_settled, SPREAD_WEIGHT, 1.0) * (deviation - spread)
    after[Statistic.LARGEST] = np.maximum(middle, np.where(has_settled, before[Statistic.LARGEST], -np.inf))
    after[Statistic.SMALLEST] = np.minimum(middle, np.where(has_settled, before[Statistic.SMALLEST], np.inf))
    np.maximum(JUMP_MEMORY * before[Statistic.JUMP], rise, out=after[Statistic.JUMP])
    return after if known.all() else np.where(known, after, before)


SMALLEST_SPREAD, SMALLEST_UNIT = 1e-3, 1e-9


class FeatureKind(IntEnum):
    """What a feature says of its input."""

    LEVEL = 0
    CHANGE = 1
    """The fast average less the mean of the baseline."""
    TREND = 2
    """The fast average less the slow one."""
    SCORE = 3
    """The change over the baseline's standard deviation."""
    DRAWDOWN = 4
    DRAWUP = 5
    """How far the average is below its largest, above its smallest value."""
    SPREAD = 6
    """The logarithm of the mean deviation over that of the baseline."""
    JUMP = 7
    """The largest rise above the slow average in the last steps."""


N_KINDS = len(FeatureKind)
FEATURE_NAMES = tuple(f"{name}.{kind.name.lower()}" for kind in FeatureKind for name in INPUT_NAMES)
"""The features in the order of the flattened matrix [FeatureKind, INPUTS]."""
_LEVEL_IF_ANY = np.array([0.0 if given.has_level else np.nan for given in INPUTS])
_REWARD_STD = INPUT_NAMES.index(REWARD_STD)
_REWARDS = [INPUT_NAMES.index(REWARD), _REWARD_STD]


def reward_error(statistics: Values) -> float:
    """Return the mean deviation of the reward from its average at the start of a run, in deviations of a batch.

    It falls with the root of the size of a batch; infinite where a batch's deviation is not known. Later noise is no
    measure of a batch: it grows before a collapse.
    """
    unit = statistics[Statistic.BASE_SUM, _REWARD_STD] / BASELINE_STEPS
    spread = statistics[Statistic.BASE_SPREAD_SUM, _REWARDS[0]] / (BASELINE_STEPS - SETTLING_STEPS)
    return float(spread / unit) if unit > SMALLEST_UNIT else math.inf


def risk_features(statistics: Values) -> Values:
    """Return the features [FeatureKind, INPUTS] of a history; NaN of inputs with fewer values than a baseline.

    Rewards have no scale of their own: they are measured in mean standard deviations of the rewards of a batch at the
    start of the run.
    """
    in_units = np.ones(N_INPUTS)
    in_units[_REWARDS] = BASELINE_STEPS / max(statistics[Statistic.BASE_SUM, _REWARD_STD], SMALLEST_UNIT)
    given = statistics * in_units
    base = given[Statistic.BASE_SUM] / BASELINE_STEPS
    variance = given[Statistic.BASE_SUM_SQ] * in_units / BASELINE_STEPS - base * base
    fast, middle = given[Statistic.FAST], given[Statistic.MIDDLE]
    features = np.empty((N_KINDS, N_INPUTS))
    features[FeatureKind.LEVEL] = fast + _LEVEL_IF_ANY
    features[FeatureKind.CHANGE] = change = fast - base
    features[FeatureKind.TREND] = fast - given[Statistic.SLOW]
    features[FeatureKind.SCORE] = change / (np.sqrt(np.maximum(variance, 0.0)) + SMALLEST_SPREAD)
    features[FeatureKind.DRAWDOWN] = given[Statistic.LARGEST] - middle
    features[FeatureKind.DRAWUP] = middle - given[Statistic.SMALLEST]
    base_spread = given[Statistic.BASE_SPREAD_SUM] / (BASELINE_STEPS - SETTLING_STEPS)
    features[FeatureKind.SPREAD] = np.log((given[Statistic.SPREAD] + SMALLEST_SPREAD) / (base_spread + SMALLEST_SPREAD))
    features[FeatureKind.JUMP] = given[Statistic.JUMP]
    features[:, statistics[Statistic.COUNT] < BASELINE_STEPS] = np.nan
    return features
