"""A turn criterion: bounds on one statistic of each turn of a sequence."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, get_args

from trmon_client.core.arrays.backend import Array
from trmon_client.core.columns.schema import Pair
from trmon_client.core.columns.turn_columns import TurnColumns
from trmon_client.core.policies.bound_checks import check_choice, check_order, checked_bound
from trmon_client.core.policies.pair_choice import PairChoice, resolve_pair
from trmon_client.core.policies.sequence_statistics import PolicyError

TURN_STATISTICS: dict[str, Callable[[TurnColumns, Pair], Array]] = {
    "turn_max_abs_d": lambda turns, pair: turns.of_pair(pair, "max_abs_d"),
    "turn_mean_k1": lambda turns, pair: -turns.of_pair(pair, "sum_d") / turns.n_tokens,
    "turn_mean_k3": lambda turns, pair: turns.of_pair(pair, "sum_k3") / turns.n_tokens,
    "turn_mean_binary_kl": lambda turns, pair: turns.of_pair(pair, "sum_binary_kl") / turns.n_tokens,
}
"""The statistics of a turn by name, read as [R] float64, with + - x / only. Source: formulas, section 6."""

TURN_ARGUMENTS = ("turn_ids", "turn_offsets")
"""The arguments of `log_batch` that give the turns, one of which a turn criterion needs."""

_KEYS = ("statistic", "pair", "lower", "upper")


@dataclass(frozen=True, slots=True)
class TurnCriterion:
    """Bounds on a statistic of a turn: lower <= statistic <= upper, inclusive; either may be absent, and NaN fails.

    Errors: PolicyError naming the invalid value and the allowed ones.
    Source: formulas, section 6.
    """

    statistic: str
    pair: PairChoice = "primary"
    lower: float | None = None
    upper: float | None = None

    def __post_init__(self) -> None:
        check_choice("statistic", self.statistic, allowed=tuple(TURN_STATISTICS))
        check_choice("pair", self.pair, allowed=get_args(PairChoice))
        for key in ("lower", "upper"):
            bound = checked_bound(key, getattr(self, key), of=self.statistic, is_ratio=False)
            object.__setattr__(self, key, bound)
        if self.lower is None and self.upper is None:
            raise PolicyError(f"{self.statistic}: a criterion needs lower, upper or both")
        check_order(self.lower, self.upper, of=self.statistic)

    @classmethod
    def parse(cls, spec: Mapping[str, Any]) -> TurnCriterion:
        """Return the criterion of a spec. Errors: PolicyError."""
        if not isinstance(spec, Mapping):
            raise PolicyError(f"a turn criterion must be a mapping, got {type(spec).__name__}")
        unknown = [str(key)[:64] for key in spec if key not in _KEYS]
        if unknown:
            raise PolicyError(f"unknown key {', '.join(unknown[:4])}; allowed: {', '.join(_KEYS)}")
        if "statistic" not in spec:
            raise PolicyError("a turn criterion needs a statistic")
        return cls(**spec)

    def spec(self) -> dict[str, Any]:
        """Return the canonical spec: every key, with the bounds as given."""
        return {key: getattr(self, key) for key in _KEYS}

    def read(self, turns: TurnColumns, pair: Pair) -> Array:
        """Return the statistic of each turn, [R] float64."""
        return TURN_STATISTICS[self.statistic](turns, pair)

    def resolve(self, pairs: tuple[Pair, ...]) -> Pair:
        """Return the pair to read. Errors: PolicyError if it is not available."""
        return resolve_pair(self.pair, pairs, reader=self.statistic)

    def is_met(self, compared: Array) -> Array:
        """Return where a statistic meets the bounds, bool [R]; NaN never does, because it compares false."""
        if self.lower is None:
            return compared <= self.upper
        return compared >= self.lower if self.upper is None else (compared >= self.lower) & (compared <= self.upper)
