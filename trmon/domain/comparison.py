"""Comparisons of runs: where they diverge, how their configurations differ, and a healthy sibling."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from trmon.domain.findings.verdict import Judgement, Word
from trmon.domain.health.judgement import RunVerdict, Urgency
from trmon.domain.runs.run import Run
from trmon.domain.signals.derived_signals import DERIVED
from trmon_client.api.comparison import ConfigDifferenceInfo, PartingInfo
from trmon_client.core.arrays import Array
from trmon_client.core.signals.catalogue import signal_words

SMOOTHED_POINTS = 5
BASELINE_POINTS = 20
LASTING_POINTS = 10
"""As many points in a row must lie apart, so that noise is no divergence."""
NOISES = 6.0
RELATIVE_GAP = 0.1
FACTOR_OF_LOGS = 2.0
"""Signals that span decades part when one is twice the other, beyond noise."""
SMALLEST_LOG = 1e-8
TO_SIGMA = 1.4826


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedSignals:
    """The signals of a run, [n] each, NaN if unknown, over ascending `places` [n]: steps or seconds since the start."""

    places: Array
    signals: Mapping[str, Array]


def divergences(
    first: ComparedSignals, second: ComparedSignals, *, logs: Sequence[str] = ()
) -> tuple[PartingInfo, ...]:
    """Return the signals in which two runs part, the earliest first; those that part later on come before those that
    differ from the start.

    Args: logs: signals that span decades, compared by their logarithms.
    """
    found = [
        divergence
        for name in first.signals
        if name in second.signals
        if (divergence := _divergence(name, first, second, is_log=name in logs)) is not None
    ]
    return tuple(sorted(found, key=lambda divergence: (divergence.from_start, divergence.place)))


def are_comparable(first: ComparedSignals, second: ComparedSignals) -> bool:
    """Whether any signal has enough points in common to show whether it parts."""
    common = [len(_aligned(name, first, second)[0]) for name in first.signals if name in second.signals]
    return max(common, default=0) >= BASELINE_POINTS + LASTING_POINTS


def _divergence(name: str, first: ComparedSignals, second: ComparedSignals, *, is_log: bool) -> PartingInfo | None:
    """Return where the gap of a smoothed signal exceeds its start by noise and a share of its size for 10 points."""
    places, one, other = _aligned(name, first, second)
    if len(places) < BASELINE_POINTS + LASTING_POINTS:
        return None
    if is_log:
        one, other = (np.log10(np.maximum(values, SMALLEST_LOG)) for values in (one, other))
    gap = np.abs(_smoothed(one) - _smoothed(other))
    changes = np.concatenate([np.diff(values[: BASELINE_POINTS + 1]) for values in (one, other)])
    noise = float(TO_SIGMA * np.median(np.abs(changes)) / np.sqrt(2))
    size = np.median(np.abs(np.concatenate([one[:BASELINE_POINTS], other[:BASELINE_POINTS]])))
    relevant = float(np.log10(FACTOR_OF_LOGS)) if is_log else max(RELATIVE_GAP * float(size), 1e-12)
    least = max(NOISES * noise, relevant)
    usual = float(np.median(gap[:BASELINE_POINTS]))
    if usual > least:
        return PartingInfo(signal=name, place=float(places[0]), from_start=True)
    lasting = np.lib.stride_tricks.sliding_window_view(gap > usual + least, LASTING_POINTS).all(axis=1)
    begins = np.flatnonzero(lasting)
    return PartingInfo(signal=name, place=float(places[begins[0]]), from_start=False) if len(begins) else None


def _aligned(name: str, first: ComparedSignals, second: ComparedSignals) -> tuple[Array, Array, Array]:
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


TOLD = 3


def divergence_sentence(found: Sequence[PartingInfo], *, by_time: bool, is_long_enough: bool) -> str:
    """Return e.g. "They part at step 250: entropy first, then reward at 262"."""
    if not is_long_enough:
        return "They have too few steps in common to tell where they part."
    later = [divergence for divergence in found if not divergence.from_start]
    always = ", ".join(_name(divergence) for divergence in found if divergence.from_start)
    differ = f"{always} {'differs' if always.count(',') == 0 else 'differ'} from the start" if always else ""
    if not later:
        return f"They do not part: {differ}, and nothing else." if differ else "They do not part: no signal differs."
    first, *others = later
    then = ", ".join(
        f"{_name(divergence)} at {_place(divergence, by_time=by_time)}" for divergence in others[: TOLD - 1]
    )
    unit = "" if by_time else "step "
    sentence = f"They part at {unit}{_place(first, by_time=by_time)}: {_name(first)} first"
    return f"{sentence}{f', then {then}' if then else ''}{f'; {differ}' if differ else ''}."


def _name(divergence: PartingInfo) -> str:
    derived = DERIVED.get(divergence.signal)
    return signal_words(divergence.signal) if derived is None else derived.words


def _place(divergence: PartingInfo, *, by_time: bool) -> str:
    if not by_time:
        return str(int(divergence.place))
    minutes = divergence.place / 60
    return f"{minutes:.1f} min" if minutes < 120 else f"{minutes / 60:.1f} h"


def compare_configs(configs: Sequence[Mapping[str, Any]]) -> list[ConfigDifferenceInfo]:
    """Return the entries that are not the same in all configurations, by name."""
    flat = [dict(config_entries(config)) for config in configs]
    names = sorted({name for one in flat for name in one})
    found = [
        ConfigDifferenceInfo(
            name=name, values=tuple(one.get(name) for one in flat), given=tuple(name in one for one in flat)
        )
        for name in names
    ]
    return [one for one in found if not all(one.given) or any(value != one.values[0] for value in one.values)]


def config_entries(config: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the entries of a configuration; nested ones have dotted names."""
    for name, value in config.items():
        if isinstance(value, Mapping) and value:
            yield from config_entries(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


SOUND = frozenset({Word.HEALTHY, Word.TRAINING_HEALTHY, Word.NOT_JUDGED})


@dataclass(frozen=True, slots=True, kw_only=True)
class SiblingCandidate:
    """Another run of the project, with its verdict and its judgement, None before its first judged step."""

    run: Run
    verdict: RunVerdict
    judgement: Judgement | None

    @property
    def is_sound(self) -> bool:
        """Whether nothing stands in the run, as far as it could be judged."""
        is_quiet = self.verdict.since_step is None and self.verdict.urgency is Urgency.NONE
        return is_quiet and self.judgement is not None and self.judgement.word in SOUND


def healthy_sibling(run: Run, candidates: Iterable[SiblingCandidate]) -> Run | None:
    """Return the sound run whose configuration differs least, the newest of several; None without a sound one."""
    sound = [one.run for one in candidates if one.run.id != run.id and one.is_sound]
    return min(sound, key=lambda other: (len(compare_configs([run.config, other.config])), -other.id), default=None)
