"""What a judge remembers of a run, in bounded space: the values of each signal, and the course of the reward."""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping, Sequence
from itertools import pairwise
from statistics import median
from typing import TypeAlias

import msgspec
import numpy as np
from msgspec import structs

from trmon.domain.signals.windows import MAD_TO_DEVIATION, QuantileSketch, is_number
from trmon_client.core.arrays import Array

START_ROWS = 20
"""The rows that are a run's start. Source: findings, section 1."""
EARLY_ROWS = 120
UNUSUAL_TIMES = 10.0
"""Of values 41 to 120 those beyond so many times the median of the ones before are no part of what was usual."""
WINDOW_ROWS = 200
EMA_WEIGHT = 2.0 / 21.0
"""An average over 20 rows."""
EMA_VARIANCE = EMA_WEIGHT / (2.0 - EMA_WEIGHT)
GROWTH_ROWS = 100
MEDIAN_ROWS = 5
MEDIAN_DEVIATION = 1.2533 * math.sqrt(2.0 / MEDIAN_ROWS)
"""The deviation of the difference of two medians of 5, over that of a value."""

Numbers: TypeAlias = tuple[float, ...]


def mean(values: Sequence[float]) -> float:
    """Return the mean of values; NaN of none."""
    return math.fsum(values) / len(values) if values else math.nan


_FLOATS = tuple(struct.Struct(f"<{n}d") for n in range(WINDOW_ROWS + 1))
_ONE, _TWO = _FLOATS[1:3]
WINDOW_BYTES = WINDOW_ROWS * _ONE.size


def median_of(values: Array) -> float:
    """Return the median of many values: numpy sorts them ten times as fast. Shape: [n], n > 0."""
    ordered, half = np.sort(values), len(values) // 2
    return float(ordered[half] if len(values) % 2 else (ordered[half - 1] + ordered[half]) / 2.0)


class SignalMemory(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The known values of one signal: the first ones, the newest 200 with their rows, their average and their noise.

    `count` values are known in all, `now` is the newest one and `last` its row. `packed` has the newest 200 as float64:
    one more value copies bytes, not references to 200 numbers. `sparse` has their rows, empty if they follow one
    another; `squares` is the sum of the squared differences of neighbours among them. `start` is the mean of the first
    20 values, NaN with fewer.
    """

    count: int = 0
    now: float = math.nan
    last: int = -1
    sparse: tuple[int, ...] = ()
    packed: bytes = b""
    early: Numbers = ()
    ema: float = math.nan
    squares: float = 0.0
    start: float = math.nan

    def with_value(self, value: float, row: int, *, early_rows: int = START_ROWS) -> SignalMemory:
        """Return the memory after one more known value. Args: early_rows: how many of the first values are kept."""
        packed, squares, count = self.packed, self.squares, self.count + 1
        if packed:
            squares += (value - self.now) ** 2
        if len(packed) == WINDOW_BYTES:
            oldest, following = _TWO.unpack_from(packed)
            left = (following - oldest) ** 2
            # What remains of a difference of large sums is noise of the arithmetic: then the sum is made anew.
            squares = squares - left if left <= 0.5 * squares else _squares((*self.values[1:], value))
            packed = packed[_ONE.size :]
        early = (*self.early, value) if count <= early_rows and self._is_usual(value) else self.early
        return SignalMemory(
            count,
            value,
            row,
            () if row == self.last + 1 and not self.sparse else self._with_row(row),
            packed + _ONE.pack(value),
            early,
            value if self.ema != self.ema else self.ema + EMA_WEIGHT * (value - self.ema),
            squares,
            mean(early) if count == START_ROWS else self.start,
        )

    def _is_usual(self, value: float) -> bool:
        """Whether a value may be one that later ones are compared with: not if an illness may have begun before."""
        settled = self.early[START_ROWS:]
        return len(settled) < START_ROWS or value <= UNUSUAL_TIMES * median(settled)

    def _with_row(self, row: int) -> tuple[int, ...]:
        """Return the rows of the newest values with one more; none if they follow one another."""
        if not self.packed:
            return ()
        rows = (*self.rows[1 - WINDOW_ROWS :], row)
        return rows if rows[-1] - rows[0] >= len(rows) else ()

    @property
    def kept(self) -> int:
        """The number of the newest values that are kept."""
        return len(self.packed) // _ONE.size

    @property
    def values(self) -> Numbers:
        """The newest 200 values, oldest first."""
        return _FLOATS[self.kept].unpack(self.packed)

    def array(self) -> Array:
        """Return the newest 200 values, oldest first, for what sorts them or compares them all. Shape: [n]."""
        return np.frombuffer(self.packed, "<f8")

    def newest(self, rows: int, *, before: int = 0) -> Numbers:
        """Return the newest values, oldest first. Args: before: how many even newer ones are left out."""
        last = max(0, len(self.packed) // _ONE.size - before)
        first = max(0, last - rows)
        return _FLOATS[last - first].unpack_from(self.packed, first * _ONE.size)

    @property
    def rows(self) -> Sequence[int]:
        """The rows of the newest values, oldest first."""
        return self.sparse or range(self.last - self.kept + 1, self.last + 1)

    def restarted(self, *, keeps_start: bool) -> SignalMemory:
        """Return the memory at the start of an attempt, whose average starts anew, and the run's start unless kept."""
        return structs.replace(self, ema=math.nan) if keeps_start else SignalMemory()

    @property
    def noise(self) -> float:
        """The deviation of a value, from differences of neighbours; 0 with fewer than two values."""
        n = self.kept - 1
        return math.sqrt(self.squares / (2.0 * n)) if n > 0 else 0.0

    def mean_of(self, rows: int, *, at_least: int = 1) -> float:
        """Return the mean of the newest values; NaN while there are fewer than `at_least`."""
        return mean(self.newest(rows)) if self.count >= at_least else math.nan

    @property
    def error_of_rise(self) -> float:
        """The standard error of the average against the start."""
        return self.noise * math.sqrt(1.0 / START_ROWS + EMA_VARIANCE)

    def growth(self) -> tuple[float, float]:
        """Return the median of 5 and the one around 100 values before (values 5 to 9 if younger); NaN with too few."""
        kept = self.kept
        first = max(MEDIAN_ROWS - (self.count - kept), kept - GROWTH_ROWS - 3)
        before = kept - first - MEDIAN_ROWS
        if self.count < START_ROWS or first < 0 or before < MEDIAN_ROWS:
            return math.nan, math.nan
        return median(self.newest(MEDIAN_ROWS)), median(self.newest(MEDIAN_ROWS, before=before))


def band(values: Sequence[float]) -> tuple[float, float]:
    """Return the median of values and their robust deviation."""
    center = median(values)
    return center, MAD_TO_DEVIATION * median(abs(value - center) for value in values)


def _squares(values: Numbers) -> float:
    return math.fsum((b - a) ** 2 for a, b in pairwise(values))


class NonFiniteMemory(msgspec.Struct, frozen=True, array_like=True):
    """How many numbers a name had before it first was none, and which of its newest 3 rows have none.

    `bad` holds the rows, of the newest three that logged the name, whose value is not finite.
    """

    numbers: int = 0
    failed: bool = False
    newest: tuple[int, ...] = ()
    bad: tuple[int, ...] = ()

    def with_value(self, value: float, row: int) -> NonFiniteMemory:
        """Return the memory after one more row that logs the name."""
        is_finite = is_number(value)
        newest = (*self.newest, row)[-3:]
        bad = tuple(known for known in (self.bad if is_finite else (*self.bad, row)) if known >= newest[0])
        failed = self.failed or not is_finite
        return NonFiniteMemory(self.numbers + (not failed), failed, newest, bad)


FAST_WEIGHT = 2.0 / 16.0
"""An average over 15 rows."""
FAST_VARIANCE = FAST_WEIGHT / (2.0 - FAST_WEIGHT)
PEAK_FROM_ROW = 10
SLOW_ROWS = 40
BLOCK_ROWS = 10
SLOW_SQUARE = 0.91
"""The median of the squared difference of two means of 10 rows, times 10, over twice a row's variance."""
FALL_SHARE = 0.3
NOISE_ERRORS = 4.0
"""A change counts beyond so many standard errors. Source: findings, section 1."""
FALL_ERRORS = 8.0
HAS_FALLEN = 0.5
RELATIVE_FLOOR = 1e-9
TOP_SHARE = 0.9
LOWER_ATOMS = (
    ("reward_min", 0.005),
    ("reward_q01", 0.025),
    ("reward_q05", 0.12),
    ("reward_q25", 0.225),
    ("reward_median", 0.25),
)
UPPER_ATOMS = (("reward_q75", 0.225), ("reward_q95", 0.12), ("reward_q99", 0.025), ("reward_max", 0.005))
ATOMS = (*LOWER_ATOMS, *UPPER_ATOMS)
"""The quantiles of a step's rewards, each with the share of the sequences that it stands for."""


def _error_of_average(rows: int) -> float:
    """Return the standard error of an average over 15 rows that began with a value so many rows ago, over the usual."""
    first = (1.0 - FAST_WEIGHT) ** (2 * rows)
    return math.sqrt(1.0 + first * (1.0 / FAST_VARIANCE - 1.0))


def floor_of(lowest: float) -> float:
    """Return what a reward at its floor does not exceed: the lower of 0 and the lowest reward, up to rounding."""
    return min(lowest, 0.0) + RELATIVE_FLOOR


class RewardMemory(msgspec.Struct, frozen=True, kw_only=True):
    """The course of the reward: its averages over 15 and 20 rows, its peak, its noise and its range.

    `averages` are the newest 101 averages over 20 rows, `average_at_start` the one of row 20; `slow` holds the
    differences of neighbouring means of 10 rows, as float64; `sketch` the quantiles of rewards of sequences, else of
    rows. `low` and `high` are the extremes seen; `maximum` is the largest reward of a sequence, NaN if only means are
    known. `peak_error` is the standard error of the peak over that of an average of many rows.
    Source: findings, section 1.
    """

    signal: SignalMemory = SignalMemory()
    e15: float = math.nan
    averages: Numbers = ()
    average_at_start: float = math.nan
    peak: float = math.nan
    peak_row: int = -1
    peak_error: float = 1.0
    slow: bytes = b""
    sketch: QuantileSketch = QuantileSketch()
    low: float = math.inf
    high: float = -math.inf
    maximum: float = math.nan
    has_sequences: bool = False

    def with_row(self, reward: float, values: Mapping[str, float], row: int) -> RewardMemory:
        """Return the course after one more row with a reward."""
        signal = self.signal.with_value(reward, row)
        e15 = reward if self.e15 != self.e15 else self.e15 + FAST_WEIGHT * (reward - self.e15)
        quantiles = [(values[name], share) for name, share in ATOMS if name in values and is_number(values[name])]
        has_quantiles = len(quantiles) >= len(LOWER_ATOMS)
        known_rewards = [reward, *(value for value, _ in quantiles)]
        is_peak = len(self.averages) + 1 >= PEAK_FROM_ROW and not e15 <= self.peak
        known = self.maximum if self.maximum == self.maximum else -math.inf
        largest = values.get("reward_max", math.nan)
        return RewardMemory(
            signal=signal,
            e15=e15,
            averages=(*self.averages[-GROWTH_ROWS:], signal.ema),
            average_at_start=signal.ema if len(self.averages) < START_ROWS else self.average_at_start,
            peak=e15 if is_peak else self.peak,
            peak_row=row if is_peak else self.peak_row,
            peak_error=_error_of_average(len(self.averages)) if is_peak else self.peak_error,
            slow=self._with_slow(signal.newest(2 * BLOCK_ROWS)),
            sketch=self.sketch.with_atoms(quantiles if has_quantiles else [(reward, 1.0)]),
            low=min(self.low, *known_rewards),
            high=max(self.high, *known_rewards),
            maximum=max(known, largest) if is_number(largest) else self.maximum,
            has_sequences=self.has_sequences or has_quantiles,
        )

    def _with_slow(self, values: Numbers) -> bytes:
        if len(values) < 2 * BLOCK_ROWS:
            return self.slow
        change = mean(values[BLOCK_ROWS:]) - mean(values[:BLOCK_ROWS])
        return self.slow[-(WINDOW_ROWS - 2 * BLOCK_ROWS) * _ONE.size :] + _ONE.pack(change)

    def restarted(self, *, keeps_start: bool) -> RewardMemory:
        """Return the course at the start of an attempt: averages start anew, peak and range only if told so."""
        if not keeps_start:
            return RewardMemory()
        signal = self.signal.restarted(keeps_start=True)
        return structs.replace(self, signal=signal, e15=math.nan, averages=())

    @property
    def noise(self) -> float:
        """The deviation of a row: the larger of that of neighbours and, from 40 rows on, that of means of 10 rows."""
        return self._noise_about(0.0)

    @property
    def noise_about_trend(self) -> float:
        """The noise without the usual change of means of 10 rows: a reward that rises all the time is no noise."""
        return self._noise_about(median_of(np.frombuffer(self.slow, "<f8")) if self.slow else 0.0)

    def _noise_about(self, usual: float) -> float:
        fast = self.signal.noise
        if self.signal.count < SLOW_ROWS or not self.slow:
            return fast
        square = median_of((np.frombuffer(self.slow, "<f8") - usual) ** 2)
        return max(fast, math.sqrt(BLOCK_ROWS * square / SLOW_SQUARE))

    @property
    def lowest(self) -> float:
        """The 1% quantile of rewards; NaN without any."""
        return self.sketch.quantile(0.01)

    @property
    def highest(self) -> float:
        """The 99% quantile of rewards; NaN without any."""
        return self.sketch.quantile(0.99)

    def fall(self, noise: float, lowest: float) -> float:
        """Return the fall from the peak, over what a healthy run may fall; NaN before row 10 of an attempt.

        The peak is the largest of many averages: the more rows, the higher it is by chance alone.
        """
        if self.peak_row < 0 or len(self.averages) < PEAK_FROM_ROW:
            return math.nan
        begun = mean(self.signal.early[:START_ROWS])
        by_chance = math.sqrt(2.0 * math.log(max(1.0, self.signal.count * FAST_VARIANCE)))
        scale = max(
            FALL_SHARE * (self.peak - lowest),
            FALL_SHARE * (self.peak - begun),
            max(FALL_ERRORS, FALL_ERRORS / 2.0 + 2.0 * by_chance) * noise * math.sqrt(FAST_VARIANCE),
            RELATIVE_FLOOR * max(1.0, abs(self.peak)),
        )
        return (self.peak - self.e15) / scale

    def is_rising(self, noise: float, fall: float) -> bool:
        """Whether the reward rises: above 100 rows ago (row 20 if younger) beyond noise, and not below 20 rows ago."""
        if len(self.averages) <= START_ROWS or fall >= FALL_SHARE:
            return False
        now, error = self.averages[-1], noise * math.sqrt(EMA_VARIANCE)
        then = self.averages[0] if len(self.averages) > GROWTH_ROWS else self.average_at_start
        return now - then > 2.0 * math.sqrt(2.0) * error and now - self.averages[-1 - START_ROWS] >= -2.0 * error

    def has_risen(self, fall: float) -> bool:
        """Whether the average is above the run's start beyond the noise of rows, and the reward has not fallen."""
        rise = self.signal.ema - self.signal.start
        return rise > NOISE_ERRORS * self.signal.error_of_rise and not fall >= HAS_FALLEN

    def is_at_floor(self, rows: int) -> bool:
        """Whether the newest rewards have not left their floor."""
        recent = self.signal.newest(rows)
        return bool(recent) and max(recent) <= floor_of(self.lowest)

    def is_at_top(self, lowest: float, highest: float) -> bool | None:
        """Whether the mean of the newest 10 rows is at the top of the rewards; None if the top is not known."""
        recent = self.signal.mean_of(BLOCK_ROWS)
        top = highest if self.has_sequences else self.maximum
        if top == top and top > lowest and recent >= lowest + TOP_SHARE * (top - lowest):
            return True
        if self.low >= 0.0 and self.high <= 1.0:
            return recent >= TOP_SHARE
        return False if top == top and top > lowest else None
