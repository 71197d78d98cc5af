"""What the independent evaluator reads of a run at a row: known values, baselines, averages, noise, the reward."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, wraps
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from trmon.domain.findings.memory import LOWER_ATOMS

Values = NDArray[np.float64]
ENGINE_PAIRS = ("mismatch", "total")
ALL_PAIRS = ("mismatch", "total", "staleness")
UPPER_NAMES = {
    "reward_min": "reward_max",
    "reward_q01": "reward_q99",
    "reward_q05": "reward_q95",
    "reward_q25": "reward_q75",
}
FIRST = 20
"""b: mean of the signal's first 20 known rows (none before 20)."""
MEMORY = 200
"""All folds have bounded memory (newest 200 values a signal)."""
ALPHA15, ALPHA20 = 2 / 16, 2 / 21
FIRST_NAMES = {
    "entropy*": ("entropy", "sampled_entropy"),
    "length*": ("response_length_median", "response_length_mean"),
    "lag*": ("engine_lag", "version_lag_mean"),
    "reference*": ("reference_kl", "ref_kl_k3"),
}
"""Quantities with several names: the first that the row logged is read."""
TRANSFORMED: dict[str, tuple[str, Callable[[float], float]]] = {
    "gap_pearson": ("engine:prob_pearson", lambda x: 1 - x),
    "gap_ppl": ("engine:ppl_ratio", lambda x: abs(x - 1)),
    "gap_k1": ("engine:kl_k1", abs),
    "gap_k3": ("engine:kl_k3", float),
    "gap_log_ratio": ("engine:abs_log_ratio_mean", float),
}
"""Distances (for levels and changes alike): 1 - Pearson, abs(ppl_ratio - 1), abs(kl_k1), kl_k3, mean abs log-ratio."""


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


@dataclass
class Run:
    """The rows of a run and, for each row, the first row of its attempt and of its baseline."""

    rows: Sequence[Mapping[str, float]]
    attempts: Sequence[int]
    config: Mapping[str, object]
    memory: dict[Any, Any] = field(default_factory=dict)
    columns: dict[str, list[float | None]] = field(default_factory=dict)

    @cached_property
    def attempt_starts(self) -> list[int]:
        """Return for each row the first row of its attempt."""
        starts: list[int] = []
        for i, attempt in enumerate(self.attempts):
            starts.append(starts[-1] if i and attempt == self.attempts[i - 1] else i)
        return starts

    def baseline_start(self, i: int) -> int:
        """Return the newest row at which b starts anew (0 without one)."""
        resets = self.config.get("resets_baseline", ())
        if not resets:
            return 0
        assert isinstance(resets, Sequence)
        return max([0, *(int(row) for row in resets if int(row) <= i)])

    def logged(self, quantity: str, i: int) -> float | None:
        """Return what the row logged of a quantity, finite or not; None if it logged nothing."""
        if quantity not in self.columns:
            source, transform = TRANSFORMED.get(quantity, (quantity, float))
            names = names_of(source)
            found = [next((row[name] for name in names if row.get(name) is not None), None) for row in self.rows]
            self.columns[quantity] = [None if value is None else transform(value) for value in found]
        return self.columns[quantity][i]

    def series(self, quantity: str) -> Series:
        """Return all known values of a quantity; readers cut it at their row."""
        if ("series", quantity) not in self.memory:
            found = [(i, self.logged(quantity, i)) for i in range(len(self.rows))]
            known = [(i, value) for i, value in found if value is not None and math.isfinite(value)]
            self.memory["series", quantity] = Series(
                [i for i, _ in known], np.array([value for _, value in known], dtype=np.float64)
            )
        series: Series = self.memory["series", quantity]
        return series

    def averages(self, quantity: str, alpha: float) -> tuple[Values, list[int]]:
        """Return the EMA after each known row and its age in rows; it starts anew with each attempt."""
        key = ("ema", quantity, alpha)
        if key not in self.memory:
            series = self.series(quantity)
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
            key = (measure.__name__, m.count(quantity) if quantity else m.i, m.run.baseline_start(m.i), *args)
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

    def count(self, quantity: str) -> int:
        """Return how many known rows a quantity has so far."""
        return bisect_right(self.run.series(quantity).rows, self.i)

    def all(self, quantity: str) -> Values:
        """Return the known values so far."""
        return self.run.series(quantity).values[: self.count(quantity)]

    def last(self, quantity: str, n: int) -> Values:
        """Return the newest n known values, fewer if there are not so many."""
        return self.all(quantity)[-n:]

    def now(self, quantity: str) -> float | None:
        """Return the value of this row; None if it is not known in it."""
        value = self.run.logged(quantity, self.i)
        return value if value is not None and math.isfinite(value) else None

    def newest(self, quantity: str) -> float | None:
        """Return the newest known value."""
        values = self.last(quantity, 1)
        return float(values[0]) if len(values) else None

    def mean20(self, quantity: str, *, at_least: int = 10) -> float | None:
        """Mean of 20 rows (10 at the start)."""
        values = self.last(quantity, 20)
        return float(np.mean(values)) if len(values) >= at_least else None

    @once_a_row()
    def b(self, quantity: str) -> float | None:
        """b: mean of the signal's first 20 known rows (none before 20)."""
        start = bisect_left(self.run.series(quantity).rows, self.run.baseline_start(self.i))
        first = self.all(quantity)[start : start + FIRST]
        return float(np.mean(first)) if len(first) == FIRST else None

    def rows21to120(self, quantity: str, *, at_least: int = 20) -> float | None:
        """Return the median of rows 21 to 120, as far as they are there."""
        values = self.all(quantity)[20:120]
        return float(np.median(values)) if len(values) >= at_least else None

    def ema(self, quantity: str, alpha: float = ALPHA20) -> float | None:
        """EMA: over 20 known rows unless said."""
        n = self.count(quantity)
        return float(self.run.averages(quantity, alpha)[0][n - 1]) if n else None

    @once_a_row()
    def noise(self, quantity: str) -> float:
        """Noise of a signal: s = sqrt(mean of (x_t - x_(t-1))^2/2) over 200 rows."""
        steps = np.diff(self.last(quantity, MEMORY))
        return float(np.sqrt(np.mean(steps**2) / 2)) if len(steps) else 0.0

    def ema_beyond_noise(self, quantity: str) -> float | None:
        """an EMA against b counts beyond 4 s sqrt(1/20 + alpha/(2 - alpha)): return EMA - b, or 0.0 within it."""
        b, ema = self.b(quantity), self.ema(quantity)
        if b is None or ema is None:
            return None
        least = 4 * self.noise(quantity) * math.sqrt(1 / 20 + ALPHA20 / (2 - ALPHA20))
        return ema - b if abs(ema - b) > least else 0.0

    def median_change(self, quantity: str, older: Values) -> tuple[float, float] | None:
        """Return the median of the newest 5 and that of older values; equal ones within the noise.

        A median of 5 against a median of 5 counts beyond 4 s 1.2533 sqrt(2/5).
        """
        newest = self.last(quantity, 5)
        if len(newest) < 5 or len(older) < 5:
            return None
        new, old = float(np.median(newest)), float(np.median(older))
        beyond = abs(new - old) > 4 * self.noise(quantity) * 1.2533 * math.sqrt(2 / 5)
        return (new, old) if beyond else (old, old)

    @once_a_row()
    def growth(self, quantity: str) -> tuple[float, float] | None:
        """growth: median of 5 over the 5 around 100 rows earlier (rows 5 to 9 if younger), beyond noise."""
        values = self.all(quantity)
        n = len(values)
        if n < 14:
            return None
        first = max(n - 102, 5)
        return self.median_change(quantity, values[first - 1 : first + 4])

    # the reward; `of` is reward_mean, or eval_reward for the main evaluation

    @once_a_row("reward_mean")
    def quantiles(self) -> tuple[float, float]:
        """r_lo, r_hi: 1% and 99% quantiles of sequence rewards, else of row means."""
        atoms: dict[float, float] = {}
        for row in self.run.series("reward_mean").rows[: self.count("reward_mean")]:
            for value, weight in _atoms(self.run.rows[row]):
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
        return max(s, math.sqrt(10 * float(np.median(np.square(d))) / 0.91))

    def se(self, alpha: float, of: str = "reward_mean") -> float:
        """se = s sqrt(alpha/(2 - alpha)) with the alpha of the average it is compared with."""
        return self.reward_noise(of) * math.sqrt(alpha / (2 - alpha))

    @once_a_row()
    def peak(self, of: str) -> tuple[float, int] | None:
        """peak: largest e15 from row 10 on; with its place among the known rows."""
        e15, ages = self.run.averages(of, ALPHA15)
        places = [at for at in range(self.count(of)) if ages[at] >= 10]
        best = max(places, key=lambda at: e15[at], default=None)
        return None if best is None else (float(e15[best]), best)

    def fall(self, of: str = "reward_mean") -> float | None:
        """fall = (peak - e15)/max(0.3 (peak - r_lo), 0.3 (peak - mean b), 8 se, 1e-9 max(1, abs(peak)))."""
        peak = self.peak(of)
        if peak is None:
            return None
        e15, b = self.ema(of, ALPHA15), self.b(of)
        low = (
            self.quantiles()[0]
            if of == "reward_mean"
            else float(np.quantile(self.all(of), 0.01, method="inverted_cdf"))
        )
        scale = [0.3 * (peak[0] - low), 8 * self.se(ALPHA15, of), 1e-9 * max(1.0, abs(peak[0]))]
        scale += [] if b is None else [0.3 * (peak[0] - b)]
        return None if e15 is None else (peak[0] - e15) / max(scale)

    def greatest_fall(self, n: int) -> float:
        """Return the largest fall within the newest n rows; 0 without one."""
        rows = self.run.series("reward_mean").rows[: self.count("reward_mean")]
        falls = [Moment(self.run, row).fall() for row in rows[-n:] if row > self.i - n]
        return max((fall for fall in falls if fall is not None), default=0.0)

    @once_a_row("reward_mean")
    def rising(self) -> bool:
        """rising: fall < 0.3, e20 above e20 of 100 rows ago (of row 20 if younger) by 2 sqrt(2) se, ...

        ... and not below e20 of 20 rows ago by 2 se.
        """
        e20, ages = self.run.averages("reward_mean", ALPHA20)
        at, fall = self.count("reward_mean") - 1, self.fall()
        if at < 0 or fall is None or ages[at] <= 20:
            return False
        age, now, se = ages[at], e20[at], self.se(ALPHA20)
        before = e20[at - age + max(age - 100, 20)]
        return bool(fall < 0.3 and now > before + 2 * math.sqrt(2) * se and now >= e20[at - 20] - 2 * se)

    @once_a_row("")
    def at_top(self) -> bool | None:
        """at its top: mean of the newest 10 rows >= r_lo + 0.9 (r_hi - r_lo) ...; else the top is unknown (None)."""
        values = self.last("reward_mean", 10)
        if not len(values):
            return None
        mean, known = float(np.mean(values)), []
        # with r_hi from *sequence* rewards (or a logged maximum)
        low, high = self.quantiles()
        largest = self.all("reward_max")
        has_quantiles = all(self.count(name) for name in (*UPPER_NAMES.values(), *UPPER_NAMES))
        top = high if has_quantiles else float(np.max(largest)) if len(largest) else None
        if top is not None and top > low:
            known.append(mean >= low + 0.9 * (top - low))
        # or >= 0.9 where rewards are seen to lie in [0, 1]
        seen = [self.all(name) for name in ("reward_mean", "reward_min", "reward_max")]
        if all(not len(some) or (np.min(some) >= 0 and np.max(some) <= 1) for some in seen):
            known.append(mean >= 0.9)
        return any(known) if known else None


def _atoms(row: Mapping[str, float]) -> list[tuple[float, float]]:
    """Return the rewards of a row with their shares of its sequences; its mean if the quantiles are not there."""
    lower = [(row.get(name, math.nan), share) for name, share in LOWER_ATOMS]
    if not all(math.isfinite(value) for value, _ in lower):
        return [(row["reward_mean"], 1.0)]
    upper = [(row.get(UPPER_NAMES[name], math.nan), share) for name, share in LOWER_ATOMS if name in UPPER_NAMES]
    if not all(math.isfinite(value) for value, _ in upper):
        return lower
    middle = (lower[-1][0], lower[-1][1] - sum(share for _, share in upper))
    return [*lower[:-1], middle, *upper]
