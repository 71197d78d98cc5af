"""Measures: the numbers that clauses of findings compare with limits, each by its name in findings.yaml.

`signal.transform` is a transform of a signal's memory; a name alone is the signal's newest value, or a measure of its
own such as `fall`. A measure that is not known is NaN.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass
from functools import cache
from statistics import median
from typing import TypeAlias

import numpy as np

from trmon.domain.collapse_risk.risk_model import model_in_use
from trmon.domain.findings.memory import (
    EMA_VARIANCE,
    MEDIAN_DEVIATION,
    MEDIAN_ROWS,
    NOISE_ERRORS,
    START_ROWS,
    NonFiniteMemory,
    RewardMemory,
    SignalMemory,
    floor_of,
    mean,
    median_of,
)
from trmon_client.core.logprob_mistakes import distance_to_unit

ENGINE_STEMS = frozenset(
    (
        *("prob_pearson", "ppl_ratio", "kl_k1", "kl_k2", "kl_k3", "abs_log_ratio_mean", "ratio_mean", "chi2_token"),
        *("ess_token", "drift_spread", "logp_slope_q", "logp_slope_p", "logp_corr_q", "ln_e_value", "k3_excess"),
    )
)
"""Signals of the engines' pair: of mismatch, else of total."""
ANY_PAIR = frozenset(("chi2_token", "ess_token"))
"""Signals that are read of staleness where no pair of engines is known."""
ALIASES: Mapping[str, tuple[str, ...]] = {
    "lag": ("engine_lag", "version_lag_mean"),
    "entropy": ("sampled_entropy", "entropy"),
    "response_length": ("response_length_mean",),
    "reference_kl": ("reference_kl", "ref_kl_k3"),
}
"""Names in clauses and the signals that they mean, the preferred one first."""
VIEWS: Mapping[str, tuple[str, Callable[[float], float]]] = {
    "pearson_gap": ("prob_pearson", lambda value: 1.0 - value),
    "ppl_gap": ("ppl_ratio", lambda value: abs(value - 1.0)),
    "kl_k1_size": ("kl_k1", abs),
}
"""Distances: numbers that are made of one signal before they are remembered."""
SETTLED = "settled_kl_k3"
"""staleness_kl_k3 in rows in which the learning rate does not rise."""


def sources_of(name: str) -> tuple[str, ...]:
    """Return the full names of the signals that a name in a clause may mean, the preferred one first."""
    stem = VIEWS[name][0] if name in VIEWS else name
    if stem in ENGINE_STEMS:
        return (f"mismatch_{stem}", f"total_{stem}", *((f"staleness_{stem}",) if stem in ANY_PAIR else ()))
    return ALIASES.get(stem, (stem,))


@cache
def remembered_as(name: str) -> tuple[str, ...]:
    """Return the keys under which the sources of a name are remembered: a view has a memory of its own."""
    prefix = f"{name}:" if name in VIEWS else ""
    return tuple(f"{prefix}{source}" for source in sources_of(name))


EMPTY = SignalMemory()


@dataclass(slots=True)
class Reading:
    """What measures read in one row: the memories after it, and what the row logs.

    `known` are the names whose number the row logs; `facts` are what the run's configuration declares. Values that
    several measures need are computed once.
    """

    row: int
    signals: Mapping[str, SignalMemory]
    nonfinite: Mapping[str, NonFiniteMemory]
    reward: RewardMemory
    evaluation: RewardMemory
    reward_at_eval_peak: float
    recent_fall: float
    facts: Mapping[str, float]
    known: Set[str]
    cache: dict[str, float]

    def memory(self, name: str) -> SignalMemory:
        """Return the memory of the first source of a name that is remembered; an empty one without any."""
        for source in remembered_as(name):
            if (found := self.signals.get(source)) is not None:
                return found
        return EMPTY

    def source(self, name: str) -> str:
        """Return the full name of the signal that a name is read from."""
        return next((source for source in sources_of(name) if source in self.signals), name)

    def computed(self, name: str) -> float:
        """Return a measure that is no transform of a signal."""
        found = self.cache.get(name)
        if found is None:
            found = self.cache[name] = COMPUTED[name](self)
        return found


# Transforms: of a memory, and the row's reading. Each knows what a single row's value is divided by in the same units.
Transform: TypeAlias = Callable[[SignalMemory, Reading], float]


def over(value: float, base: float) -> float:
    """Return a ratio: NaN where the base is not known or both are 0, infinite over 0."""
    if base > 0.0:
        return value / base
    if base == 0.0 and value > 0.0:
        return math.inf
    return math.nan


def against(value: float, past: float) -> float:
    """Return a value over one of the past: 1 where both are 0, infinite where it was not above 0."""
    if value == past == 0.0:
        return 1.0
    return math.inf if past <= 0.0 < value else over(value, past)


def in_errors(distance: float, error: float) -> float:
    """Return a distance in standard errors: infinite where there is no noise, NaN where there is no distance either."""
    if distance != distance:
        return math.nan
    return abs(distance) / error if error > 0.0 else (math.inf if distance else 0.0)


def _mean(memory: SignalMemory, _: Reading) -> float:
    return memory.mean_of(START_ROWS, at_least=10)


def _mean_of_others(memory: SignalMemory, _: Reading) -> float:
    """The mean of 20 values without the largest of them: one spike is no level."""
    recent = memory.newest(START_ROWS)
    return mean(sorted(recent)[:-1]) if len(recent) >= 10 else math.nan


def _over_recent(memory: SignalMemory, _: Reading) -> float:
    """Of the median of the 50 values before that have a signal, of which there must be 20."""
    values = memory.array()
    before = values[:-1][values[:-1] > 1e-3 * _usual(memory)][-50:]
    return against(memory.now, median_of(before)) if len(before) >= START_ROWS else math.nan


def _over_before(memory: SignalMemory, _: Reading) -> float:
    """Of the median of the 50 values that end 5 values back, from value 55 on."""
    return against(memory.now, median(memory.newest(50, before=5))) if memory.count >= 55 else math.nan


def _early(memory: SignalMemory) -> float:
    """The median of values 21 to 120, of which there must be 20."""
    later = memory.early[START_ROWS:]
    return median(later) if len(later) > START_ROWS else math.nan


def _usual(memory: SignalMemory) -> float:
    """The 90% quantile of the newest 200 values."""
    ordered = np.sort(memory.array())
    return float(ordered[min(len(ordered) - 1, int(0.9 * len(ordered)))]) if len(ordered) else math.nan


def _over_usual(memory: SignalMemory, _: Reading) -> float:
    usual = _usual(memory)
    return memory.now / usual if usual > 0 else (0.0 if memory.now == 0.0 else math.nan)


def _rises(memory: SignalMemory, _: Reading) -> float:
    """The number of neighbours, newest first, that each rose by one at least."""
    for rises in range(memory.kept - 1):
        before, after = memory.newest(2, before=rises)
        if after - before < 1.0 - 1e-9:
            return float(rises)
    return float(memory.kept - 1)


def _rise(memory: SignalMemory, _: Reading) -> float:
    now, then = memory.growth()
    return now - then


def _beyond_noise(memory: SignalMemory, _: Reading) -> float:
    return in_errors(memory.ema - memory.start, memory.error_of_rise)


def _off_before(memory: SignalMemory, _: Reading) -> float:
    """The factor between the median of the newest 5 and that of the 5 that are 20 values older; 1 within noise."""
    if memory.count < START_ROWS + MEDIAN_ROWS:
        return math.nan
    now, then = median(memory.newest(MEDIAN_ROWS)), median(memory.newest(MEDIAN_ROWS, before=20))
    if in_errors(now - then, memory.noise * MEDIAN_DEVIATION) <= NOISE_ERRORS:
        return 1.0
    return max(over(now, then), over(then, now)) if now > 0 and then > 0 else math.nan


def _over_50_before(memory: SignalMemory, _: Reading) -> float:
    if memory.count < START_ROWS + 50:
        return math.nan
    return against(memory.mean_of(START_ROWS), mean(memory.newest(START_ROWS, before=50)))


def _same(memory: SignalMemory, _: Reading) -> float:
    """The most frequent value's number of rows among the newest 20."""
    recent = memory.newest(START_ROWS)
    return float(max(Counter(recent).values())) if len(recent) >= START_ROWS else math.nan


def _different(memory: SignalMemory, _: Reading) -> float:
    """The number of values of the newest 20 rows."""
    recent = memory.newest(START_ROWS)
    return float(len(set(recent))) if len(recent) >= START_ROWS else math.nan


def _off_one_errors(memory: SignalMemory, _: Reading) -> float:
    return in_errors(memory.mean_of(START_ROWS, at_least=START_ROWS) - 1.0, memory.noise / math.sqrt(START_ROWS))


def _below_peak(memory: SignalMemory, _: Reading) -> float:
    """How far the newest value is below the largest, as a share of the range."""
    values = memory.values
    highest, lowest = max(values), min(values)
    return (highest - memory.now) / (highest - lowest) if highest > lowest else 0.0


TRANSFORMS: Mapping[str, Transform] = {
    "": lambda memory, _: memory.now,
    "mean": _mean,
    "mean_of_others": _mean_of_others,
    "mean_size": lambda memory, _: abs(memory.mean_of(START_ROWS, at_least=START_ROWS)),
    "mean_over_start": lambda memory, reading: against(_mean(memory, reading), memory.start),
    "average": lambda memory, _: memory.ema,
    "average_over_start": lambda memory, _: against(memory.ema, memory.start),
    "average_over_usual": lambda memory, _: (
        against(memory.ema, median(memory.early[:START_ROWS])) if memory.count >= START_ROWS else math.nan
    ),
    "average_over_early": lambda memory, _: against(memory.ema, _early(memory)),
    "average_off_one": lambda memory, _: abs(memory.ema - 1.0),
    "average_errors": lambda memory, _: in_errors(memory.ema - 1.0, memory.noise * math.sqrt(EMA_VARIANCE)),
    "beyond_noise": _beyond_noise,
    "over_start": lambda memory, _: against(memory.now, memory.start),
    "over_recent": _over_recent,
    "over_before": _over_before,
    "over_early": lambda memory, _: against(memory.now, _early(memory)),
    "above_early": lambda memory, _: memory.now - _early(memory),
    "over_usual": _over_usual,
    "above_usual": lambda memory, _: memory.now - median_of(memory.array()) if memory.count else math.nan,
    "over_50_before": _over_50_before,
    "off_before": _off_before,
    "off_one": lambda memory, _: abs(memory.mean_of(START_ROWS, at_least=START_ROWS) - 1.0),
    "off_one_errors": _off_one_errors,
    "off_unit": lambda memory, _: distance_to_unit(memory.now),
    "rises": _rises,
    "growth": lambda memory, _: against(*memory.growth()),
    "growth_errors": lambda memory, reading: in_errors(_rise(memory, reading), memory.noise * MEDIAN_DEVIATION),
    "rise": _rise,
    "same": _same,
    "different": _different,
    "below_peak_errors": lambda memory, _: in_errors(max(memory.values) - memory.now, memory.noise),
    "below_peak": _below_peak,
}
"""What a clause may read of a signal, by the name after the dot."""
AVERAGES = frozenset(
    (
        "mean",
        "mean_of_others",
        "mean_size",
        "mean_over_start",
        "average",
        "average_over_start",
        "average_over_usual",
        "off_one",
    )
)
"""Transforms over rows, which need no hold."""
SCALES: Mapping[str, Callable[[SignalMemory], float]] = {
    "": lambda _: 1.0,
    "mean": lambda _: 1.0,
    "mean_of_others": lambda _: 1.0,
    "average": lambda _: 1.0,
    "over_start": lambda memory: memory.start,
    "average_over_start": lambda memory: memory.start,
    "over_usual": _usual,
}
"""What one row's value is divided by to be compared with a limit, by transform."""


def _total(reading: Reading, name: str, rows: int) -> float:
    memory = reading.memory(name)
    return math.fsum(memory.newest(rows)) if memory.count else math.nan


ZERO_ROWS, GAP_ROWS = 10, 20


def _zero_tail_against_chance(reading: Reading) -> float:
    """Tail zeros over those that sequences end with by chance: N/(1 - P0), P0 the share of zeros before the tails."""
    tail, zeros = reading.memory("n_zero_tail").now, reading.memory("n_mu_zero").now
    tokens, sequences = reading.memory("n_tokens").now, reading.memory("n_sequences").now
    others = tokens - tail
    share = min((zeros - tail) / others, 1.0 - 1e-6) if others > 0 else 0.0
    return tail * (1.0 - share) / sequences if sequences > 0 else math.nan


def _slope_means(reading: Reading) -> tuple[float, float]:
    return tuple(reading.memory(f"logp_slope_{side}").mean_of(START_ROWS, at_least=START_ROWS) for side in "qp")  # type: ignore[return-value]


def _smaller_slope(reading: Reading) -> float:
    s1, s2 = _slope_means(reading)
    return min(abs(s1), abs(s2)) if s1 * s2 > 0 else (math.nan if s1 != s1 or s2 != s2 else 0.0)


def _slope_factor(reading: Reading) -> float:
    s1, s2 = map(abs, _slope_means(reading))
    return over(max(s1, s2), min(s1, s2))


def _slopes(reading: Reading, rows: int) -> list[float]:
    newest = zip(*(reversed(reading.memory(f"logp_slope_{side}").newest(rows)) for side in "qp"), strict=False)
    return [(s1 + s2) / 2.0 for s1, s2 in newest][::-1]


def _slope_spread(reading: Reading) -> float:
    """The largest over the smallest of the four means of 5 rows of the newest 20."""
    slopes = _slopes(reading, START_ROWS)
    if len(slopes) < START_ROWS:
        return math.nan
    means = [abs(mean(slopes[i : i + 5])) for i in range(0, START_ROWS, 5)]
    return over(max(means), min(means))


def _steady_correlation(reading: Reading) -> float:
    """The least size of corr(d, log q) in the newest 5 rows; 0 unless both slopes of all of them are alike."""
    rows = [reading.memory(name).newest(MEDIAN_ROWS) for name in ("logp_slope_q", "logp_slope_p", "logp_corr_q")]
    if min(map(len, rows)) < MEDIAN_ROWS:
        return math.nan
    slopes = (*rows[0], *rows[1])
    least, most = sorted(map(abs, (min(slopes), max(slopes))))
    are_alike = min(slopes) * max(slopes) > 0 and least >= 0.012 and most <= 2 * least
    return min(map(abs, rows[2])) if are_alike else 0.0


def _past_slopes(reading: Reading) -> list[float]:
    """The means of both slopes over 5 rows, of the newest 100 rows that have one, oldest first."""
    slopes = _slopes(reading, 99 + MEDIAN_ROWS)
    return [mean(slopes[i : i + MEDIAN_ROWS]) for i in range(len(slopes) + 1 - MEDIAN_ROWS)]


def _ramp_rows(reading: Reading) -> float:
    """The number of the newest 100 rows whose mean of 5 lies between 1/4 and 3/4 of the present one."""
    means = _past_slopes(reading)
    present = means[-1] if means else 0.0
    return float(sum(0.25 < value / present < 0.75 for value in means)) if present else math.nan


def _slopes_over_past(reading: Reading) -> float:
    """The mean of 5 over the largest of those that share no row with it, of 20 rows at least."""
    means = _past_slopes(reading)
    before = means[:-MEDIAN_ROWS]
    return over(abs(means[-1]), max(map(abs, before))) if len(before) > START_ROWS - MEDIAN_ROWS else math.nan


def _since_eval_peak(reading: Reading) -> float:
    """How far the reward's average is above its value at the peak of evaluations, in standard errors."""
    error = reading.computed("reward_noise") * math.sqrt(EMA_VARIANCE)
    change = reading.reward.signal.ema - reading.reward_at_eval_peak
    return math.copysign(in_errors(change, error), change)


def _at_top(reading: Reading) -> float:
    found = reading.reward.is_at_top(reading.computed("reward_lowest"), reading.computed("reward_highest"))
    return math.nan if found is None else float(found)


FLOOR_ROWS = 50


def _floor_errors(reading: Reading) -> float:
    """How far the mean of 50 rows is above the lowest reward, in its standard errors."""
    signal = reading.reward.signal
    above = signal.mean_of(FLOOR_ROWS, at_least=FLOOR_ROWS) - reading.computed("reward_lowest")
    return in_errors(above, signal.noise / math.sqrt(FLOOR_ROWS)) if above > 0 else 0.0 * above


def _kl_k1_share(reading: Reading) -> float:
    """abs(kl_k1) over the mean absolute log-ratio; 0 within 3 of its standard errors, from kl_k2 where it is known."""
    size, k1, k2 = (reading.memory(name).now for name in ("abs_log_ratio_mean", "kl_k1", "kl_k2"))
    tokens = reading.memory("n_tokens").now
    deviation = math.sqrt(max(0.0, 2.0 * k2 - k1 * k1)) if k2 == k2 else size
    is_noise = tokens > 0 and abs(k1) < 3.0 * deviation / math.sqrt(tokens)
    return 0.0 if is_noise else over(abs(k1), size)


def _advantage_size(reading: Reading) -> float:
    """The largest absolute advantage; that of the largest alone where the smallest is not known."""
    largest, smallest = reading.memory("advantage_max").now, reading.memory("advantage_min").now
    return abs(largest) if smallest != smallest else max(abs(largest), abs(smallest))


def _replayed_flip_rate(reading: Reading) -> float:
    """The rate of flips where the configuration replays the routing, which leaves next to none."""
    is_declared = reading.facts.get("replay_declared", 0.0) > 0
    return reading.memory("router_flip_rate").now if is_declared else math.nan


def _risk(reading: Reading) -> float:
    """The risk of a collapse; NaN in a row in which the predictor is silent."""
    return reading.memory("collapse_risk").now if "collapse_risk" in reading.known else math.nan


COMPUTED: Mapping[str, Callable[[Reading], float]] = {
    "reward_noise": lambda reading: reading.reward.noise,
    "reward_lowest": lambda reading: reading.reward.lowest,
    "reward_highest": lambda reading: reading.reward.highest,
    "fall": lambda reading: reading.reward.fall(
        reading.computed("reward_noise") * reading.reward.peak_error, reading.computed("reward_lowest")
    ),
    "fall.recent": lambda reading: max(reading.recent_fall, reading.computed("fall")),
    "eval_fall": lambda reading: reading.evaluation.fall(reading.evaluation.noise, reading.evaluation.lowest),
    "reward_since_eval_peak": _since_eval_peak,
    "rising": lambda reading: float(
        reading.reward.is_rising(reading.computed("reward_noise"), reading.computed("fall"))
    ),
    "has_risen": lambda reading: float(reading.reward.has_risen(reading.computed("fall"))),
    "at_top": _at_top,
    "reward_mean.above_floor": lambda reading: reading.reward.signal.now - floor_of(reading.computed("reward_lowest")),
    "reward_floor_errors": _floor_errors,
    "zeros.count": lambda reading: _total(reading, "n_mu_zero_unlikely", ZERO_ROWS),
    "zeros.rows": lambda reading: float(
        sum(value > 0 for value in reading.memory("n_mu_zero_unlikely").newest(ZERO_ROWS))
    ),
    "zeros.share": lambda reading: over(reading.computed("zeros.count"), _total(reading, "n_unlikely", ZERO_ROWS)),
    "zeros.share_of_gaps": lambda reading: over(
        reading.computed("zeros.count"), _total(reading, "n_prob_diff_half", ZERO_ROWS)
    ),
    "gaps.count": lambda reading: _total(reading, "n_prob_diff_half", GAP_ROWS),
    "gaps.share": lambda reading: over(reading.computed("gaps.count"), _total(reading, "n_tokens", GAP_ROWS)),
    "zero_tail.share": lambda reading: over(reading.memory("n_zero_tail").now, reading.memory("n_tokens").now),
    "zero_tail.against_chance": _zero_tail_against_chance,
    "kl_k1_share": _kl_k1_share,
    "spread_share": lambda reading: over(reading.memory("drift_spread").now, reading.memory("kl_k2").now),
    "kl_k1.over_abs": lambda reading: over(reading.memory("kl_k1").now, reading.memory("abs_log_ratio_mean").now),
    "slopes.smaller": _smaller_slope,
    "slopes.factor": _slope_factor,
    "slopes.spread": _slope_spread,
    "slopes.ramp_rows": _ramp_rows,
    "slopes.over_past": _slopes_over_past,
    "steady_slopes.corr": _steady_correlation,
    "advantage_size": _advantage_size,
    "risk": _risk,
    "risk_over_limit": lambda reading: reading.computed("risk") / model_in_use().file.warn_at,
    "replayed_flip_rate": _replayed_flip_rate,
}
"""Measures that are no transform of one signal."""
READ_BY: Mapping[str, tuple[str, ...]] = {
    "fall": ("reward_mean",),
    "eval_fall": ("eval_reward",),
    "reward_mean.above_floor": ("reward_mean",),
    "reward_floor_errors": ("reward_mean",),
    "reward_since_eval_peak": ("eval_reward",),
    "zeros.count": ("n_mu_zero_unlikely", "n_unlikely", "n_prob_diff_half"),
    "gaps.count": ("n_prob_diff_half", "n_tokens"),
    "gaps.share": ("n_prob_diff_half", "n_tokens"),
    "zero_tail.share": ("n_zero_tail", "n_mu_zero", "n_tokens", "n_sequences"),
    "slopes.smaller": ("logp_slope_q", "logp_slope_p"),
    "steady_slopes.corr": ("logp_corr_q", "logp_slope_q", "logp_slope_p"),
    "risk": ("collapse_risk",),
    "risk_over_limit": ("collapse_risk",),
    "replayed_flip_rate": ("router_flip_rate",),
    "advantage_size": ("advantage_max", "advantage_min"),
    "kl_k1.over_abs": ("kl_k1", "abs_log_ratio_mean"),
    "spread_share": ("drift_spread", "kl_k2"),
    "kl_k1_share": ("kl_k1", "abs_log_ratio_mean", "kl_k2", "n_tokens"),
}
"""The signals that a computed measure reads; the first one decides whether a row is judged."""
