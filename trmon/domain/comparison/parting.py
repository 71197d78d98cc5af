"""Where two runs part: the first place from which a signal of one stays away from that of the other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

Array: TypeAlias = Any

SMOOTHED_POINTS = 5
BASELINE_POINTS = 20
LASTING_POINTS = 10
"""As many points in a row must lie apart, so that noise is no parting."""
NOISES = 6.0
RELATIVE_GAP = 0.1
FACTOR_OF_LOGS = 2.0
"""Signals that span decades part when one is twice the other, beyond noise."""
SMALLEST_LOG = 1e-8
TO_SIGMA = 1.4826


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedCourse:
    """The signals of a run, [n] each, NaN if unknown, over ascending `places` [n]: steps or seconds since the start."""

    places: Array
    signals: Mapping[str, Array]


@dataclass(frozen=True, slots=True)
class Parting:
    """A signal, and the place from which two runs differ in it; `from_start` if they do from their first common one."""

    signal: str
    place: float
    from_start: bool = False


def partings(first: ComparedCourse, second: ComparedCourse, *, logs: Sequence[str] = ()) -> tuple[Parting, ...]:
    """Return the signals in which two runs part, the earliest first; those that part later on come before those that
    differ from the start.

    Args: logs: signals that span decades, compared by their logarithms.
    """
    found = [
        parting
        for name in first.signals
        if name in second.signals
        if (parting := _parting(name, first, second, is_log=name in logs)) is not None
    ]
    return tuple(sorted(found, key=lambda parting: (parting.from_start, parting.place)))


def are_comparable(first: ComparedCourse, second: ComparedCourse) -> bool:
    """Whether any signal has enough points in common to tell whether it parts."""
    common = [len(_aligned(name, first, second)[0]) for name in first.signals if name in second.signals]
    return max(common, default=0) >= BASELINE_POINTS + LASTING_POINTS


def _parting(name: str, first: ComparedCourse, second: ComparedCourse, *, is_log: bool) -> Parting | None:
    """Return where a signal parts.

    Both are smoothed by the median of 5 points. They are apart where their gap exceeds its median over the first 20
    common points by 6 standard deviations of the noise, and by a tenth of their size (a factor of 2 for logarithms),
    for 10 points in a row. They differ from the start if that median itself is so large.
    """
    places, one, other = _aligned(name, first, second)
    if len(places) < BASELINE_POINTS + LASTING_POINTS:
        return None
    if is_log:
        one, other = (np.log10(np.maximum(values, SMALLEST_LOG)) for values in (one, other))
    gap = np.abs(_smoothed(one) - _smoothed(other))
    least = max(NOISES * _noise(one, other), _relevant(one, other, is_log=is_log))
    usual = float(np.median(gap[:BASELINE_POINTS]))
    if usual > least:
        return Parting(name, float(places[0]), from_start=True)
    begins = np.flatnonzero(_lasting(gap > usual + least))
    return Parting(name, float(places[begins[0]])) if len(begins) else None


def _aligned(name: str, first: ComparedCourse, second: ComparedCourse) -> tuple[Array, Array, Array]:
    """Return the places of the first run that both cover, and both values there: the second's newest until then."""
    known = np.isfinite(second.signals[name])
    places, values = second.places[known], second.signals[name][known]
    if not len(places):
        return places, values, values
    is_common = (first.places >= places[0]) & (first.places <= places[-1]) & np.isfinite(first.signals[name])
    common = first.places[is_common]
    at = np.searchsorted(places, common, side="right") - 1
    return common, first.signals[name][is_common], values[at]


def _smoothed(values: Array) -> Array:
    """Return the medians of 5 points around each, of fewer at the ends."""
    padded = np.pad(values, SMOOTHED_POINTS // 2, mode="edge")
    return np.median(np.lib.stride_tricks.sliding_window_view(padded, SMOOTHED_POINTS), axis=1)


def _noise(one: Array, other: Array) -> float:
    """Return the standard deviation of both signals' noise over the first points, from their differences."""
    changes = np.concatenate([np.diff(values[: BASELINE_POINTS + 1]) for values in (one, other)])
    return float(TO_SIGMA * np.median(np.abs(changes)) / np.sqrt(2))


def _relevant(one: Array, other: Array, *, is_log: bool) -> float:
    if is_log:
        return float(np.log10(FACTOR_OF_LOGS))
    size = np.median(np.abs(np.concatenate([one[:BASELINE_POINTS], other[:BASELINE_POINTS]])))
    return max(RELATIVE_GAP * float(size), 1e-12)


def _lasting(apart: Array) -> Array:
    """Return the places at which a stretch of points apart begins, [n - 9]."""
    return np.lib.stride_tricks.sliding_window_view(apart, LASTING_POINTS).all(axis=1)
