"""What the independent evaluator reads of a run at a row: known values, baselines, averages, noise, the reward."""

from __future__ import annotations

import math
import statistics
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property, wraps
from itertools import pairwise
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float64]
ENGINE_PAIRS = ("mismatch", "total")
ALL_PAIRS = ("mismatch", "total", "staleness")
ATOMS = {
    "reward_min": 0.0,
    "reward_q01": 0.01,
    "reward_q05": 0.05,
    "reward_q25": 0.25,
    "reward_median": 0.5,
    "reward_q75": 0.75,
    "reward_q95": 0.95,
    "reward_q99": 0.99,
    "reward_max": 1.0,
}
"""The quantiles of a row's rewards; each stands for the rewards that are nearer to it than to the others."""
_LEVELS = list(ATOMS.values())
_EDGES = [0.0, *((low + high) / 2 for low, high in pairwise(_LEVELS)), 1.0]
SHARES = {name: high - low for name, (low, high) in zip(ATOMS, pairwise(_EDGES), strict=True)}
FIRST = 20
"""b: mean of the signal's first 20 known rows (none before 20)."""
MEMORY = 200
"""All folds have bounded memory (newest 200 values a signal)."""
ALPHA15, ALPHA20 = 2 / 16, 2 / 21
FIRST_NAMES = {
    "entropy*": ("sampled_entropy", "entropy"),
    "lag*": ("engine_lag", "version_lag_mean"),
    "reference*": ("reference_kl", "ref_kl_k3"),
}
"""Quantities with several names: the first that the run has known is read."""
TRANSFORMED: dict[str, tuple[str, Callable[[float], float]]] = {
    "gap_pearson": ("engine:prob_pearson", lambda x: 1 - x),
    "gap_ppl": ("engine:ppl_ratio", lambda x: abs(x - 1)),
    "gap_k1": ("engine:kl_k1", abs),
    "gap_k3": ("engine:kl_k3", float),
    "gap_log_ratio": ("engine:abs_log_ratio_mean", float),
}
"""Distances (for levels and changes alike): 1 - Pearson, abs(ppl_ratio - 1), abs(kl_k1), kl_k3, mean abs log-ratio."""


def mean(values: Values) -> float:
    """Return the mean of values: of few, np.mean takes most of its time for other things."""
    return float(np.add.reduce(values) / len(values))


def median(values: Sequence[float] | Values) -> float:
    """Return the median of values: of few, np.median takes most of its time for other things."""
    return float(statistics.median(values.tolist() if isinstance(values, np.ndarray) else values))


@cache
def names_read(quantity: str) -> tuple[str, ...]:
    """Return the names that a quantity or a distance is read from."""
    return names_of(TRANSFORMED[quantity][0] if quantity in TRANSFORMED else quantity)


@cache
def names_of(quantity: str) -> tuple[str, ...]:
    """Return the names that a quantity is read from, in order of preference.

    A signal without a pair means `mismatch`; where it is absent `total`, else `staleness`.
    """
    scope, colon, stem = quantity.partition(":")
    if colon:
        return tuple(f"{pair}_{stem}" for pair in (ENGINE_PAIRS if scope == "engine" else ALL_PAIRS))
    return FIRST_NAMES.get(quantity, (quantity,))


@dataclass(frozen=True)
class Series:
    """The known values of one quantity with their rows: logged in this row and finite."""

    rows: list[int]
    values: Values
    listed: list[float]


Span = tuple[Series, int, int]
"""All values of a quantity, and the places of the first that counts at a row and of the first of later rows."""


@dataclass
class Run:
    """The rows of a run, the attempt of each, and the rows at which another configuration begins."""

    rows: Sequence[Mapping[str, float]]
    attempts: Sequence[int]
    config: Mapping[str, object]
    fresh: Sequence[int] = ()
    memory: dict[Any, Any] = field(default_factory=dict)
    spans: dict[str, list[Span]] = field(default_factory=dict)

    @cached_property
    def moments(self) -> list[Moment]:
        """Return the run as it is known after each row."""
        return [Moment(self, i) for i in range(len(self.rows))]

    @cached_property
    def atoms(self) -> list[list[tuple[float, float]]]:
        """Return the rewards of each row with their shares of its sequences; none of a row without a reward."""
        return [_atoms(row) if "reward_mean" in row else [] for row in self.rows]

    @cached_property
    def reward_limits(self) -> list[tuple[float, float]]:
        """Return the least and the largest reward that each row logged."""
        logged = [[x for x in map(row.get, ("reward_mean", *ATOMS)) if x is not None] for row in self.rows]
        finite = [[x for x in rewards if math.isfinite(x)] for rewards in logged]
        return [(min(rewards, default=math.inf), max(rewards, default=-math.inf)) for rewards in finite]

    @cached_property
    def baseline_starts(self) -> list[int]:
        """Return for each row the row from which on values count: the newest with another configuration, or 0."""
        return [max([0, *(row for row in self.fresh if row <= i)]) for i in range(len(self.rows))]

    @cached_property
    def attempt_starts(self) -> list[int]:
        """Return for each row the first row of its attempt, or of its configuration."""
        starts: list[int] = []
        for i, attempt in enumerate(self.attempts):
            goes_on = i > 0 and attempt == self.attempts[i - 1] and i not in self.fresh
            starts.append(starts[-1] if goes_on else i)
        return starts

    def source(self, quantity: str, i: int) -> str:
        """Return the name that a quantity is read from: the first of its names that the run has known so far."""
        names = names_read(quantity)
        if len(names) == 1:
            return names[0]
        return next((name for name in names if (rows := self.series(name).rows) and rows[0] <= i), names[0])

    def logged(self, name: str, i: int) -> float | None:
        """Return what the row logged under a name, finite or not; None if it logged nothing."""
        return self.rows[i].get(name)

    def series(self, name: str, quantity: str = "") -> Series:
        """Return all known values of a name, as the quantity has them; readers cut it at their row."""
        key = ("series", name, quantity if quantity in TRANSFORMED else "")
        if key not in self.memory:
            transform = TRANSFORMED[quantity][1] if quantity in TRANSFORMED else float
            found = [(i, row[name]) for i, row in enumerate(self.rows) if row.get(name) is not None]
            known = [(i, transform(value)) for i, value in found if math.isfinite(value)]
            listed = [value for _, value in known]
            self.memory[key] = Series([i for i, _ in known], np.array(listed, dtype=np.float64), listed)
        series: Series = self.memory[key]
        return series

    def spans_of(self, quantity: str) -> list[Span]:
        """Return for each row what is known of a quantity then."""
        spans = self.spans.get(quantity)
        if spans is None:
            spans = self.spans[quantity] = []
            several = [self.series(name, quantity) for name in names_read(quantity)]
            for i, start in enumerate(self.baseline_starts):
                series = next((one for one in several if one.rows and one.rows[0] <= i), several[0])
                spans.append((series, bisect_left(series.rows, start), bisect_right(series.rows, i)))
        return spans

    def is_logged(self, quantity: str) -> list[bool]:
        """Return for each row whether a quantity is logged in it and finite."""
        key = ("is logged", quantity)
        if key not in self.memory:
            spans = enumerate(self.spans_of(quantity))
            self.memory[key] = [end > 0 and series.rows[end - 1] == i for i, (series, _, end) in spans]
        found: list[bool] = self.memory[key]
        return found

    def averages(self, name: str, quantity: str, alpha: float) -> tuple[Values, list[int]]:
        """Return the EMA after each known row and its age in rows; it starts anew with each attempt."""
        key = ("ema", name, quantity, alpha)
        if key not in self.memory:
            series = self.series(name, quantity)
            averages: list[float] = []
            ages: list[int] = []
            for at, (row, value) in enumerate(zip(series.rows, series.values, strict=True)):
                fresh = at == 0 or self.attempt_starts[series.rows[at - 1]] != self.attempt_starts[row]
                averages.append(value if fresh else averages[-1] + alpha * (value - averages[-1]))
                ages.append(1 if fresh else ages[-1] + 1)
            self.memory[key] = np.array(averages, dtype=np.float64), ages
        answer: tuple[Values, list[int]] = self.memory[key]
        return answer


F = TypeVar("F", bound=Callable[..., Any])


def once_a_row(of: str | None = None) -> Callable[[F], F]:
    """Compute a measure once after each known row of its quantity: `of`, else its first argument; "" is any row."""

    def decorate(measure: F) -> F:
        @wraps(measure)
        def kept(m: Moment, *args: Any) -> Any:
            quantity = args[0] if of is None else of
            row = (
                m.i if not quantity else (m.run.source(quantity, m.i), m._span(quantity)[2], m.run.attempt_starts[m.i])
            )
            key = (measure.__name__, row, *args)
            if key not in m.run.memory:
                m.run.memory[key] = measure(m, *args)
            return m.run.memory[key]

        return cast(F, kept)

    return decorate


@dataclass(frozen=True)
class Moment:
    """A run as it is known after row i; `relaxed` asks for the limits at which a standing finding clears."""

    run: Run
    i: int
    relaxed: bool = False

    def upper(self, limit: float) -> float:
        """Clear: false (an upper limit x 0.8, ...) in 10 known rows running."""
        return limit * 0.8 if self.relaxed else limit

    def lower(self, limit: float) -> float:
        """Clear: false (..., a lower limit / 0.8) in 10 known rows running."""
        return limit / 0.8 if self.relaxed else limit

    def _span(self, quantity: str) -> Span:
        return self.run.spans_of(quantity)[self.i]

    def count(self, quantity: str) -> int:
        """Return how many known rows a quantity has so far."""
        _, first, end = self._span(quantity)
        return end - first

    def all(self, quantity: str) -> Values:
        """Return the known values so far."""
        series, first, end = self._span(quantity)
        return series.values[first:end]

    def rows(self, quantity: str) -> list[int]:
        """Return the known rows so far."""
        series, first, end = self._span(quantity)
        return series.rows[first:end]

    def last(self, quantity: str, n: int) -> Values:
        """Return the newest n known values, fewer if there are not so many."""
        return self.all(quantity)[-n:]

    def known(self, quantity: str) -> bool:
        """Whether the quantity is logged in this row and finite."""
        return self.run.is_logged(quantity)[self.i]

    def now(self, quantity: str) -> float | None:
        """Return the newest known value; None before the first."""
        series, first, end = self._span(quantity)
        return float(series.listed[end - 1]) if end > first else None

    def averages(self, quantity: str, alpha: float) -> tuple[Values, list[int]]:
        """Return the averages of this attempt's known rows so far, and of older ones, with the ages."""
        _, first, end = self._span(quantity)
        averages, ages = self.run.averages(self.run.source(quantity, self.i), quantity, alpha)
        return averages[first:end], ages[first:end]

    def age(self, quantity: str) -> int:
        """Return how many known rows of a quantity this attempt has so far."""
        rows = self.rows(quantity)
        return len(rows) - bisect_left(rows, self.run.attempt_starts[self.i])

    def mean20(self, quantity: str, *, at_least: int = 10) -> float | None:
        """Mean of 20 rows (10 at the start)."""
        values = self.last(quantity, 20)
        return mean(values) if len(values) >= at_least else None

    def b(self, quantity: str) -> float | None:
        """b: mean of the signal's first 20 known rows (none before 20)."""
        first = self.all(quantity)[:FIRST]
        return mean(first) if len(first) == FIRST else None

    def rows21to120(self, quantity: str) -> float | None:
        """Return the median of rows 21 to 120, from row 41 on, as far as they are there."""
        _, first, end = self._span(quantity)
        key = ("rows 21 to 120", self.run.source(quantity, self.i), quantity, first, min(end, first + 120))
        if key not in self.run.memory:
            found = usual_values(self.all(quantity)[20:120])
            self.run.memory[key] = median(found) if len(found) > 20 else None
        usual: float | None = self.run.memory[key]
        return usual

    def ema(self, quantity: str, alpha: float = ALPHA20) -> float | None:
        """EMA: over 20 known rows unless said; none before the first of an attempt."""
        return float(self.averages(quantity, alpha)[0][-1]) if self.age(quantity) else None

    @once_a_row()
    def noise(self, quantity: str) -> float:
        """Noise of a signal: s = sqrt(mean of (x_t - x_(t-1))^2/2) over 200 rows."""
        steps = np.diff(self.last(quantity, MEMORY))
        return float(np.sqrt(mean(steps**2) / 2)) if len(steps) else 0.0

    def ema_beyond_noise(self, quantity: str) -> float | None:
        """an EMA against b counts beyond 4 s sqrt(1/20 + alpha/(2 - alpha)): return EMA - b, or 0.0 within it."""
        b, ema = self.b(quantity), self.ema(quantity)
        if b is None or ema is None:
            return None
        least = self.upper(4) * self.noise(quantity) * math.sqrt(1 / 20 + ALPHA20 / (2 - ALPHA20))
        return ema - b if abs(ema - b) > least else 0.0

    def median_change(self, quantity: str, older: Values) -> tuple[float, float, bool]:
        """Return the median of the newest 5, that of older values, and whether they differ beyond the noise.

        A median of 5 against a median of 5 counts beyond 4 s 1.2533 sqrt(2/5).
        """
        new, old = median(self.last(quantity, 5)), median(older)
        return new, old, abs(new - old) > self.upper(4) * self.noise(quantity) * 1.2533 * math.sqrt(2 / 5)

    def growth(self, quantity: str) -> tuple[float, float, bool] | None:
        """growth: median of 5 over the 5 around 100 rows earlier (rows 5 to 9 if younger), beyond noise."""
        values = self.all(quantity)
        first = max(len(values) - 103, 5)
        return self.median_change(quantity, values[first : first + 5]) if len(values) >= 20 else None

    # the reward; `of` is reward_mean, or eval_reward for the main evaluation

    @once_a_row("reward_mean")
    def quantiles(self) -> tuple[float, float]:
        """r_lo, r_hi: 1% and 99% quantiles of sequence rewards, else of row means."""
        atoms: dict[float, float] = {}
        for row in self.rows("reward_mean"):
            for value, weight in self.run.atoms[row]:
                atoms[value] = atoms.get(value, 0.0) + weight
        whole, seen = math.fsum(atoms.values()), 0.0
        found: list[float] = []
        for value in sorted(atoms):
            seen += atoms[value]
            found += [value] * (seen >= 0.01 * whole and not found)
            if seen >= 0.99 * whole:
                return found[0], value
        return found[0], max(atoms)

    @once_a_row()
    def reward_noise(self, of: str) -> float:
        """s = the larger of (a) sqrt(mean of (r_t - r_(t-1))^2/2) and, from 40 rows on, (b) sqrt(10 median(d^2)/0.91).

        d = mean of the newest 10 rows minus that of the 10 before, overlapping, both over 200 rows.
        """
        s, values = self.noise(of), self.last(of, MEMORY)
        if self.count(of) < 40:
            return s
        means = np.convolve(values, np.full(10, 0.1), mode="valid")
        d = means[10:] - means[:-10]
        return max(s, math.sqrt(10 * median(np.square(d)) / 0.91))

    def se(self, alpha: float, of: str = "reward_mean") -> float:
        """se = s sqrt(alpha/(2 - alpha)) with the alpha of the average it is compared with."""
        return self.reward_noise(of) * math.sqrt(alpha / (2 - alpha))

    @once_a_row()
    def peak(self, of: str) -> tuple[float, int] | None:
        """peak: largest e15 from row 10 on; with its place among the known rows."""
        e15, ages = self.averages(of, ALPHA15)
        places = [at for at in range(len(ages)) if ages[at] >= 10]
        best = max(places, key=lambda at: e15[at], default=None)
        return None if best is None else (float(e15[best]), best)

    @once_a_row("")
    def fall(self, of: str = "reward_mean") -> float | None:
        """fall = (peak - e15)/max(0.3 (peak - r_lo), 0.3 (peak - mean b), k se, 1e-9 max(1, abs(peak))).

        k = the larger of 8 and 4 + 2 sqrt(2 ln(n/15)) over n rows: the largest of n averages. se of the peak: an
        average that began with the first value has more of it than of others, and so a larger variance; not of
        evaluations, which are few and of many sequences.
        """
        peak, e15, b = self.peak(of), self.ema(of, ALPHA15), self.b(of)
        if peak is None or e15 is None or self.age(of) < 10:
            return None
        low = (
            self.quantiles()[0]
            if of == "reward_mean"
            else float(np.quantile(self.all(of), 0.01, method="inverted_cdf"))
        )
        first = (1 - ALPHA15) ** (self.averages(of, ALPHA15)[1][peak[1]] - 1)  # the first value's weight in the peak
        steady = ALPHA15 / (2 - ALPHA15)
        variance = steady * (1 - first**2) + first**2 if of == "reward_mean" else steady
        k = max(8.0, 4 + 2 * math.sqrt(2 * math.log(max(1.0, self.count(of) / 15))))
        scale = [0.3 * (peak[0] - low), k * self.reward_noise(of) * math.sqrt(variance), 1e-9 * max(1.0, abs(peak[0]))]
        scale += [] if b is None else [0.3 * (peak[0] - b)]
        return (peak[0] - e15) / max(scale)

    def greatest_fall(self) -> float:
        """Return the largest fall within the newest 20 rows of the attempt; 0 without one."""
        rows = [row for row in self.rows("reward_mean") if row >= self.run.attempt_starts[self.i]]
        falls = [self.run.moments[row].fall() for row in rows[-21:]]
        return max((fall for fall in falls if fall is not None), default=0.0)

    @once_a_row("reward_mean")
    def rising(self) -> bool:
        """rising: fall < 0.3, e20 above e20 of 100 rows ago (of row 20 if younger) by 2 sqrt(2) se, ...

        ... and not below e20 of 20 rows ago by 2 se.
        """
        age, fall = self.age("reward_mean"), self.fall()
        if fall is None or age <= 20:
            return False
        e20, se = self.averages("reward_mean", ALPHA20)[0][-age:], self.se(ALPHA20)
        before, now = e20[age - 101 if age > 100 else 19], e20[-1]
        return bool(fall < 0.3 and now > before + 2 * math.sqrt(2) * se and now >= e20[-21] - 2 * se)

    @once_a_row("")
    def at_top(self) -> bool | None:
        """at its top: mean of the newest 10 rows >= r_lo + 0.9 (r_hi - r_lo) ...; else the top is unknown (None)."""
        values = self.last("reward_mean", 10)
        if not len(values):
            return None
        recent, known = mean(values), []
        # with r_hi from *sequence* rewards (or a logged maximum)
        low, high = self.quantiles()
        rows = [self.run.rows[row] for row in self.rows("reward_mean")]
        largest = [row["reward_max"] for row in rows if math.isfinite(row.get("reward_max", math.nan))]
        has_sequences = any(len(self.run.atoms[row]) > 1 for row in self.rows("reward_mean"))
        top = high if has_sequences else max(largest, default=None)
        if top is not None and top > low:
            known.append(recent >= low + 0.9 * (top - low))
        # or >= 0.9 where rewards are seen to lie in [0, 1]
        seen = [self.run.reward_limits[row] for row in self.rows("reward_mean")]
        if min(low for low, _ in seen) >= 0 and max(high for _, high in seen) <= 1:
            known.append(recent >= 0.9)
        return any(known) if known else None


def usual_values(values: Sequence[float] | Values) -> list[float]:
    """Return rows 21 to 120 without, from row 41 on, those beyond 10 x the median of the ones before, ascending."""
    found: list[float] = []
    for value in values:
        if len(found) < 20 or value <= 10 * statistics.median(found):
            insort(found, float(value))
    return found


def _atoms(row: Mapping[str, float]) -> list[tuple[float, float]]:
    """Return the rewards of a row with their shares of its sequences; its mean if too few quantiles are there."""
    found = [(row[name], share) for name, share in SHARES.items() if math.isfinite(row.get(name, math.nan))]
    return found if len(found) >= 5 else [(row["reward_mean"], 1.0)]
