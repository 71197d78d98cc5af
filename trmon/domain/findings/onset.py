"""Onset: the row in which an illness began, which is not the row in which it was found. Source: findings, section 4."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from statistics import median

from trmon.domain.collapse_risk.risk_model import model_in_use
from trmon.domain.findings.catalogue import Clause, Comparison
from trmon.domain.findings.measures import COMPUTED, FLOOR_ROWS, SCALES, Reading
from trmon.domain.findings.memory import START_ROWS, SignalMemory, band, floor_of, mean
from trmon_client.core.logprob_mistakes import distance_to_unit

BAND_DEVIATIONS = 3.0
ROWS_BEFORE_PEAK, LEAST_BEFORE_PEAK = 50, 15
ROWS_OF_REWARD = ("reward_mean", "eval_reward")
AGAINST_START = ("over_start", "average_over_start")
"""Transforms that compare with the run's own start, also where they are levels."""
GOOD_ROWS_BACK = 30
"""How far before its onset a change may be under way unseen: a guard on the reward ends late by an average or so."""
ALREADY_OFF = 0.5
"""Values whose first part is so far off, of the rest, have been off from the start."""


@dataclass(frozen=True, slots=True)
class Onset:
    """The first row of an illness; `walked` is that row before any guard moved it.

    `beyond` is the first row beyond the limit, where the two differ; `then` the signal's value in the last row before.
    `good` is the last row that is good beyond doubt, -1 without any.
    """

    row: int
    walked: int
    beyond: int | None = None
    then: float = math.nan
    good: int = -1


def onset_of(clause: Clause, reading: Reading, *, guarded: int) -> Onset:
    """Return the onset of a clause that holds. Args: guarded: its last guarded row. Source: findings, section 4."""
    found = _walked(clause, reading)
    row = found.row if found.row > guarded else min(guarded + 1, reading.row)
    good = _last_good(clause, reading, found.walked, row)
    return Onset(row, found.walked, _beyond(clause.decisive, reading, row), found.then, good)


def _beyond(decisive: Comparison, reading: Reading, onset: int) -> int | None:
    """Return the first row beyond the limit; None where that is the onset, or rows have no limit of their own."""
    scale = SCALES.get(decisive.transform)
    if scale is None or decisive.measure in COMPUTED:
        return None
    memory = _memory(decisive, reading)
    limit = decisive.limit * scale(memory)
    values = zip(memory.rows, memory.values, strict=True)
    row = next((row for row, value in values if row >= onset and decisive.is_beyond(value, limit)), onset)
    return row if row > onset else None


def _last_good(clause: Clause, reading: Reading, walked: int, row: int) -> int:
    """Return the last row before an onset that is good beyond doubt.

    Of a change, the last one on the good side of one robust deviation from the 20 known rows that end 30 rows before
    the onset, or else the first of those 30.
    """
    memory = _memory(clause.decisive, reading)
    is_change = _is_walked_back(clause)
    rows = [known for known in memory.rows if known < (row if is_change else walked)]
    if not (rows and is_change):
        return rows[-1] if rows else walked - 1
    count, values = len(rows), memory.values
    usual = values[max(0, count - GOOD_ROWS_BACK - START_ROWS) : max(START_ROWS, count - GOOD_ROWS_BACK)][:count]
    center, deviation = band(usual)
    deviation = max(deviation, _least_change(clause))
    side = 1.0 if values[-1] > center else -1.0
    first = max(0, count - GOOD_ROWS_BACK)
    good = (i for i in range(count - 1, first, -1) if side * (_smooth(values, i) - center) <= deviation)
    return rows[next(good, first)]


def _smooth(values: Sequence[float], i: int) -> float:
    return median(values[max(0, i - 1) : i + 2])


def _memory(decisive: Comparison, reading: Reading) -> SignalMemory:
    """Return the memory of the deciding signal: of rewards that of their course."""
    courses = {"reward_mean": reading.reward, "eval_reward": reading.evaluation}
    course = courses.get(decisive.signals[0])
    return reading.memory(decisive.signals[0]) if course is None else course.signal


def _is_of_reward(decisive: Comparison) -> bool:
    has_course = decisive.measure in COMPUTED or decisive.transform == "below_peak"
    return decisive.signals[0] in ROWS_OF_REWARD and has_course


def _is_walked_back(clause: Clause) -> bool:
    """Whether the onset is where the signal left the band of the run's start."""
    return not _is_of_reward(clause.decisive) and (clause.is_change or clause.decisive.transform in AGAINST_START)


def _walked(clause: Clause, reading: Reading) -> Onset:
    decisive = clause.decisive
    transform = decisive.transform
    if transform in ("lost", "nonfinite"):
        rows = [row for memory in reading.nonfinite.values() for row in memory.bad]
        return Onset(min(rows), min(rows)) if rows else Onset(reading.row, reading.row)
    if not _memory(decisive, reading).count:
        # What held before a changed configuration may take another name after it: `solved`, no learning signal.
        return Onset(reading.row, reading.row)
    if _is_of_reward(decisive):
        return _of_reward(decisive, reading)
    memory = reading.memory(decisive.signals[0])
    if transform == "same":
        recent = memory.newest(START_ROWS)
        usual = max(set(recent), key=recent.count)
        return _level(memory.rows, memory.values, lambda value: value != usual)
    if transform == "rises":  # The step after the last one that did not rise is the first that should have been synced.
        row = memory.rows[-1 - int(decisive.read(reading))]
        return Onset(row, row)
    if _is_walked_back(clause):
        return _change(memory, _least_change(clause))
    if decisive.measure in COMPUTED:
        # One dropped log-prob of several that are asked for is one too many.
        least = 1.0 if decisive.measure == "zeros.count" else decisive.limit
        rows_of_measure = _row_values(decisive.measure, memory, reading)
        return _level(*rows_of_measure, lambda value: not decisive.is_beyond(value, least))
    if transform in ("off_one", "average_off_one"):
        # Single rows are too noisy: the row that best splits the distances from 1 into lower and higher ones.
        side = 1.0 if memory.ema > 1.0 else -1.0
        values = memory.values
        distances = [side * (value - 1.0) for value in values]
        at = _best_split([-distance for distance in distances])
        if mean(distances[:at]) > ALREADY_OFF * mean(distances[at:]):
            return Onset(memory.rows[0], memory.rows[0])
        return Onset(memory.rows[at], memory.rows[at], then=values[at - 1])
    if transform == "off_unit":
        distances = [distance_to_unit(value) for value in memory.values]
        return _level(memory.rows, distances, lambda distance: not decisive.is_beyond(distance, decisive.limit))
    if transform not in SCALES:
        row = memory.rows[max(0, len(memory.rows) - clause.hold.rows)]
        return Onset(row, row)
    scale = SCALES[transform](memory)
    limit = decisive.limit * scale if scale > 0 else decisive.limit
    return _level(memory.rows, memory.values, lambda value: not decisive.is_beyond(value, limit))


def _of_reward(decisive: Comparison, reading: Reading) -> Onset:
    course = reading.reward if decisive.signals[0] == "reward_mean" else reading.evaluation
    if decisive.measure == "reward_floor_errors":
        row = course.signal.rows[-min(FLOOR_ROWS, len(course.signal.rows))]
        return Onset(row, row)
    if decisive.measure == "reward_mean.above_floor":
        floor = floor_of(course.lowest)
        return _level(course.signal.rows, course.signal.values, lambda value: value > floor)
    # The row that best splits the rows since before the peak into a higher and a lower mean.
    rows, values = course.signal.rows, course.signal.values
    peak = next((i for i, row in enumerate(rows) if row >= course.peak_row), 0)
    first = max(0, peak - ROWS_BEFORE_PEAK)
    at = _best_split(values[first:])
    place = first + max(at, peak - first - LEAST_BEFORE_PEAK)
    place = min(max(place, 0), len(rows) - 1)
    return Onset(rows[place], rows[place], then=values[place - 1] if place else math.nan)


def _row_values(measure: str, memory: SignalMemory, reading: Reading) -> tuple[Sequence[int], Sequence[float]]:
    """Return what single rows have of a measure over several rows or signals."""
    match measure:
        case "gaps.share" | "zero_tail.share":
            tokens = reading.memory("n_tokens")
            of_row = dict(zip(tokens.rows, tokens.values, strict=True))
            return memory.rows, [
                value / max(of_row.get(row, math.inf), 1.0)
                for row, value in zip(memory.rows, memory.values, strict=True)
            ]
        case "risk_over_limit":
            return memory.rows, [value / model_in_use().file.warn_at for value in memory.values]
    return memory.rows, [abs(value) for value in memory.values]


def _level(rows: Sequence[int], values: Sequence[float], is_inside: Callable[[float], bool]) -> Onset:
    """The row after the last two neighbours inside; the first row where there are none."""
    inside = [is_inside(value) for value in values]
    for i in range(len(inside) - 1, 0, -1):
        if inside[i] and inside[i - 1]:
            row = rows[min(i + 1, len(inside) - 1)]
            return Onset(row, row, then=values[i])
    return Onset(rows[0], rows[0])


def _least_change(clause: Clause) -> float:
    """How much of a signal counts for nothing, where the clause has a level of it: equal engines have no noise."""
    name = clause.decisive.measure.partition(".")[0]
    levels = [part.limit for part in clause.when if part.measure == name and part.side.startswith(">")]
    return OF_LEVEL * levels[0] if levels else 0.0


def _change(memory: SignalMemory, least: float) -> Onset:
    """Back from the newest row to the last one within 3 robust deviations of the start, on the side of the change."""
    center, deviation = band(memory.early[:START_ROWS])
    values = memory.values
    side = 1.0 if values[-1] > center else -1.0
    edge = max(BAND_DEVIATIONS * deviation, 1e-12, least)
    for i in range(len(values) - 1, -1, -1):
        if side * (_smooth(values, i) - center) <= edge:
            row = memory.rows[min(i + 1, len(values) - 1)]
            return Onset(row, row, then=values[i])
    return Onset(memory.rows[0], memory.rows[0])


OF_LEVEL = 0.01
LEAST_PART = 4


def _best_split(values: Sequence[float]) -> int:
    """Return the length of the first part, at least 4 values, of the least-squares split into high and low."""
    if len(values) <= LEAST_PART + 2:
        return len(values) - 1
    sums = list(accumulate(values))
    best, gain = LEAST_PART, -1.0
    for n in range(LEAST_PART, len(values) - 1):
        rest = len(values) - n
        drop = sums[n - 1] / n - (sums[-1] - sums[n - 1]) / rest
        if drop > 0 and drop * drop * n * rest > gain:
            best, gain = n, drop * drop * n * rest
    return best
