"""Conditions: what must hold of a history for a finding, step by step, in three-valued logic.

Rules judge one row as it passes and name the comparison that decided; a diagnosis looks back, and names them all.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from trmon.domain.diagnosis.finding import Evidence, Missing
from trmon.domain.diagnosis.history import JUDGED, Array, History
from trmon.domain.diagnosis.missing_inputs import how_to_provide
from trmon.domain.rules.condition import ThresholdSide, Truth
from trmon_client.core.columns.schema import Pair

FALSE, UNKNOWN, TRUE = 0, 1, 2
"""Kleene's values in an order in which "and" is the least and "or" the largest."""
_TRUTHS = {FALSE: Truth.FALSE, UNKNOWN: Truth.UNKNOWN, TRUE: Truth.TRUE}


@dataclass(frozen=True, slots=True)
class Quorum:
    """How many of the newest `rows` rows must be beyond a limit: a share of them, and `least`; a young run has fewer.

    So many rows must also know the signal: what was seen once among unknown values is not lasting.
    """

    rows: int
    share: float
    least: int

    def needed(self, n: int) -> Array:
        """Return how many rows are needed where each of n rows is the newest, [n]."""
        there = np.minimum(np.arange(1, n + 1), self.rows)
        return np.minimum(there, np.maximum(self.least, np.ceil(self.share * there)))

    def count(self, marked: Array) -> Array:
        """Return how many of the newest rows are marked, for every row as the newest, [n]."""
        total = np.cumsum(np.append(0, marked))
        ends = np.arange(1, len(total))
        return total[ends] - total[np.maximum(0, ends - self.rows)]


LASTING = Quorum(rows=5, share=0.5, least=1)
"""More often than not; one step of noise makes no finding, and one step of calm ends none."""
AT_TIMES = Quorum(rows=20, share=0.0, least=2)
"""Twice in 20 rows: for what strikes now and then."""
EVER = Quorum(rows=20, share=0.0, least=1)
"""Once in 20 rows: for what must never happen."""


@dataclass(frozen=True, slots=True)
class HistoryVerdict:
    """What is known of a condition: its truth by step [n], and of the newest step the evidence and what is missing.

    `since` is the index of the step from which it has held without a break; 0 where it does not hold.
    """

    truths: Array
    evidence: tuple[Evidence, ...] = ()
    missing: tuple[Missing, ...] = ()
    since: int = 0

    @property
    def truth(self) -> Truth:
        """What holds at the newest step."""
        return _TRUTHS[int(self.truths[-1])]


class HistoryCondition(Protocol):
    """Anything that can be asked of a history."""

    def read(self, history: History) -> HistoryVerdict:
        """Return what is known of it, step by step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryLimit:
    """A signal, or its distance from a point, strictly beyond a threshold, in as many rows as the quorum asks for.

    A stem means the first of `pairs` that the history has; an `optional` signal that nobody sends is not missed.
    Distances have the bound ABOVE.
    """

    signal: str
    bound: ThresholdSide
    threshold: float
    away_from: float | None = None
    pairs: tuple[Pair, ...] = JUDGED
    quorum: Quorum = LASTING
    optional: bool = False

    def read(self, history: History) -> HistoryVerdict:
        """Return whether it lies beyond; NaN is unknown."""
        name, values = history.find(self.signal, pairs=self.pairs)
        if self.optional and not history.has(name):
            return HistoryVerdict(np.full(len(history), FALSE))
        beyond, known = self._beyond(values), ~np.isnan(values)
        truths = self._truths(beyond, known)
        if truths[-1] == UNKNOWN:
            return HistoryVerdict(truths, missing=(Missing(name, how_to_provide(name, sent=history.has(name))),))
        if truths[-1] == FALSE:
            return HistoryVerdict(truths)
        since = self._since(truths, beyond)
        return HistoryVerdict(truths, (self._evidence(name, history, values, beyond, since),), since=since)

    def _beyond(self, values: Array) -> Array:
        """Distances are compared as two bounds, so that 1.01 is no further from 1 than 0.01."""
        if self.away_from is not None:
            return (values > self.away_from + self.threshold) | (values < self.away_from - self.threshold)
        return values > self.threshold if self.bound is ThresholdSide.ABOVE else values < self.threshold

    def _truths(self, beyond: Array, known: Array) -> Array:
        needed = self.quorum.needed(len(known))
        holds = np.where(self.quorum.count(beyond) >= needed, TRUE, FALSE)
        return np.where(self.quorum.count(known) >= needed, holds, UNKNOWN)

    def _since(self, truths: Array, beyond: Array) -> int:
        """The quorum is reached late; what it counted began earlier."""
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
        )


@dataclass(frozen=True, slots=True)
class HistoryAnyOf:
    """True where one part is; unknown where none is true and one is unknown."""

    parts: tuple[HistoryCondition, ...]

    def read(self, history: History) -> HistoryVerdict:
        """Return the parts' verdict, with the evidence of those that are true."""
        found = [part.read(history) for part in self.parts]
        return _combined(found, np.maximum.reduce([verdict.truths for verdict in found]), since=min)


@dataclass(frozen=True, slots=True)
class HistoryAllOf:
    """True where every part is; false where one is false."""

    parts: tuple[HistoryCondition, ...]

    def read(self, history: History) -> HistoryVerdict:
        """Return the parts' verdict, with the evidence of all if it holds."""
        found = [part.read(history) for part in self.parts]
        return _combined(found, np.minimum.reduce([verdict.truths for verdict in found]), since=max)


@dataclass(frozen=True, slots=True)
class HistoryNot:
    """True where its part is false; it has no evidence of its own."""

    part: HistoryCondition

    def read(self, history: History) -> HistoryVerdict:
        """Return the opposite of the part's verdict."""
        found = self.part.read(history)
        truths = TRUE - found.truths
        return HistoryVerdict(truths, missing=found.missing, since=_start(truths) if truths[-1] == TRUE else 0)


def _combined(found: list[HistoryVerdict], truths: Array, *, since: Callable[[list[int]], int]) -> HistoryVerdict:
    if truths[-1] == UNKNOWN:
        parts = [verdict for verdict in found if verdict.truth is Truth.UNKNOWN]
        return HistoryVerdict(truths, missing=_each_once([gap for verdict in parts for gap in verdict.missing]))
    if truths[-1] == FALSE:
        return HistoryVerdict(truths)
    held = [verdict for verdict in found if verdict.truth is Truth.TRUE]
    evidence = tuple(item for verdict in held for item in verdict.evidence)
    return HistoryVerdict(truths, evidence, since=since([verdict.since for verdict in held]))


def _each_once(missing: list[Missing]) -> tuple[Missing, ...]:
    return tuple(dict.fromkeys(missing))


def _start(truths: Array) -> int:
    """Return where the unbroken stretch that ends at the newest row begins."""
    broken = np.flatnonzero(truths != TRUE)
    return int(broken[-1]) + 1 if len(broken) else 0
