"""Conditions of findings over a history, in three-valued logic, evaluated for each step.

Rules evaluate one row and name the comparison that decided; a diagnosis evaluates the history and names them all.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from trmon.domain.diagnosis.history import DEFAULT_PAIRS, Array, History
from trmon.domain.diagnosis.missing_inputs import INPUTS, how_to_provide
from trmon.domain.diagnosis.observation import Evidence, Missing
from trmon.domain.rules.condition import ThresholdSide, Truth
from trmon_client.core.columns.schema import Pair

FALSE, UNKNOWN, TRUE = 0, 1, 2
"""Kleene's truth values, ordered so that "and" is the minimum and "or" the maximum."""
_TRUTHS = {FALSE: Truth.FALSE, UNKNOWN: Truth.UNKNOWN, TRUE: Truth.TRUE}


@dataclass(frozen=True, slots=True)
class Quorum:
    """How many of the newest `rows` rows must be beyond a limit: a share of them, and at least `least`.

    The signal must be known in as many rows, so one value among unknown ones is no finding.
    """

    rows: int
    share: float
    least: int

    def needed(self, n: int) -> Array:
        """Return how many rows are needed, with each of n rows as the newest, [n]."""
        available = np.minimum(np.arange(1, n + 1), self.rows)
        return np.minimum(available, np.maximum(self.least, np.ceil(self.share * available)))

    def count(self, marked: Array) -> Array:
        """Return how many of the newest rows are marked, with each row as the newest, [n]."""
        total = np.cumsum(np.append(0, marked))
        ends = np.arange(1, len(total))
        return total[ends] - total[np.maximum(0, ends - self.rows)]


SUSTAINED = Quorum(rows=5, share=0.5, least=1)
"""In at least half of 5 rows, so that one noisy step makes no finding and one quiet step ends none."""
RECURRING = Quorum(rows=20, share=0.0, least=2)
"""Twice in 20 rows, for events that recur."""
HOLDING = Quorum(rows=3, share=1.0, least=3)
"""In three rows running."""
LASTING = Quorum(rows=20, share=1.0, least=20)
"""In twenty rows running, so that a slow decline is told from noise."""
ONCE = Quorum(rows=20, share=0.0, least=1)
"""Once in 20 rows, for events that must never happen."""


@dataclass(frozen=True, slots=True)
class HistoryVerdict:
    """The result of a condition: its truth by step, [n], and the evidence and the missing signals of the newest step.

    `since` is the index of the step since which it has held without a break; 0 if it does not hold.
    """

    truths: Array
    evidence: tuple[Evidence, ...] = ()
    missing: tuple[Missing, ...] = ()
    since: int = 0

    @property
    def truth(self) -> Truth:
        """The truth at the newest step."""
        return _TRUTHS[int(self.truths[-1])]


class HistoryCondition(Protocol):
    """A condition over a history."""

    def read(self, history: History) -> HistoryVerdict:
        """Return the result for each step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryLimit:
    """A signal, or its distance from a point, strictly beyond a threshold in as many rows as the quorum requires.

    A stem means the first of `pairs` that the history has; an `optional` signal does not count as missing. Distances
    have the bound ABOVE. A limit that `rules_out` holds for usual values, which exclude another cause.
    """

    signal: str
    bound: ThresholdSide
    threshold: float
    away_from: float | None = None
    pairs: tuple[Pair, ...] = DEFAULT_PAIRS
    quorum: Quorum = SUSTAINED
    optional: bool = False
    rules_out: bool = False

    def read(self, history: History) -> HistoryVerdict:
        """Return whether the signal is beyond the threshold; NaN is unknown."""
        name, values = history.find(self.signal, pairs=self.pairs)
        if self.optional and not history.has(name):
            return HistoryVerdict(np.full(len(history), FALSE))
        beyond, known = self._beyond(values), ~np.isnan(values)
        truths = self._truths(beyond, known)
        if truths[-1] == UNKNOWN:
            return HistoryVerdict(truths, missing=(_missing(name, history),))
        if truths[-1] == FALSE:
            return HistoryVerdict(truths)
        since = self._since(truths, beyond)
        return HistoryVerdict(truths, (self._evidence(name, history, values, beyond, since),), since=since)

    def _beyond(self, values: Array) -> Array:
        """Return the rows beyond the threshold; comparing with two bounds avoids the rounding of a difference."""
        if self.away_from is not None:
            return (values > self.away_from + self.threshold) | (values < self.away_from - self.threshold)
        return values > self.threshold if self.bound is ThresholdSide.ABOVE else values < self.threshold

    def _truths(self, beyond: Array, known: Array) -> Array:
        needed = self.quorum.needed(len(known))
        holds = np.where(self.quorum.count(beyond) >= needed, TRUE, FALSE)
        return np.where(self.quorum.count(known) >= needed, holds, UNKNOWN)

    def _since(self, truths: Array, beyond: Array) -> int:
        """Return the first row that the quorum counted, which is before the row at which it was reached."""
        start = _start(truths)
        first = max(0, start + 1 - self.quorum.rows)
        return first + int(np.argmax(beyond[first : start + 1]))

    def _evidence(self, name: str, history: History, values: Array, beyond: Array, since: int) -> Evidence:
        newest = int(np.flatnonzero(beyond)[-1])
        return Evidence(
            signal=name,
            value=float(values[newest]),
            bound=self.bound,
            threshold=self.threshold,
            since_step=int(history.steps[since]),
            away_from=self.away_from,
            rules_out=self.rules_out,
        )


@dataclass(frozen=True, slots=True)
class HistoryAnyOf:
    """True if one part is true; unknown if none is true and one is unknown."""

    parts: tuple[HistoryCondition, ...]

    def read(self, history: History) -> HistoryVerdict:
        """Return the combined result, with the evidence of the true parts."""
        found = [part.read(history) for part in self.parts]
        return _combined(found, np.maximum.reduce([verdict.truths for verdict in found]), since=min)


@dataclass(frozen=True, slots=True)
class HistoryAllOf:
    """True if every part is true; false if one is false."""

    parts: tuple[HistoryCondition, ...]

    def read(self, history: History) -> HistoryVerdict:
        """Return the combined result, with the evidence of all parts if it holds."""
        found = [part.read(history) for part in self.parts]
        return _combined(found, np.minimum.reduce([verdict.truths for verdict in found]), since=max)


@dataclass(frozen=True, slots=True)
class HistoryNot:
    """True if its part is false; it has no evidence."""

    part: HistoryCondition

    def read(self, history: History) -> HistoryVerdict:
        """Return the negated result of the part."""
        found = self.part.read(history)
        truths = TRUE - found.truths
        return HistoryVerdict(truths, missing=found.missing, since=_start(truths) if truths[-1] == TRUE else 0)


@dataclass(frozen=True, slots=True)
class HistoryUnless:
    """True unless its part is true: a part that is unknown does not count; it has no evidence and no start."""

    part: HistoryCondition

    def read(self, history: History) -> HistoryVerdict:
        """Return the result for each step."""
        return HistoryVerdict(np.where(self.part.read(history).truths == TRUE, FALSE, TRUE))


def _combined(found: list[HistoryVerdict], truths: Array, *, since: Callable[[list[int]], int]) -> HistoryVerdict:
    if truths[-1] == UNKNOWN:
        parts = [verdict for verdict in found if verdict.truth is Truth.UNKNOWN]
        return HistoryVerdict(truths, missing=_deduplicated([gap for verdict in parts for gap in verdict.missing]))
    if truths[-1] == FALSE:
        return HistoryVerdict(truths)
    held = [verdict for verdict in found if verdict.truth is Truth.TRUE]
    evidence = tuple(item for verdict in held for item in verdict.evidence)
    return HistoryVerdict(truths, evidence, since=since([verdict.since for verdict in held]))


def _deduplicated(missing: list[Missing]) -> tuple[Missing, ...]:
    return tuple(dict.fromkeys(missing))


def _start(truths: Array) -> int:
    """Return the first row since which the condition has held without a break."""
    broken = np.flatnonzero(truths != TRUE)
    return int(broken[-1]) + 1 if len(broken) else 0


def _missing(name: str, history: History) -> Missing:
    """Return a signal as missing; one that is computed from inputs which are sent needs more steps only."""
    inputs = [history.find(signal)[1] for signal in INPUTS.get(name, ())]
    is_sent = any(np.isfinite(values).any() for values in inputs)
    return Missing(name, how_to_provide(name, sent=history.has(name)), more_steps=is_sent)
