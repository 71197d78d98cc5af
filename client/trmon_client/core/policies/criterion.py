"""An acceptance criterion: bounds on one per-sequence statistic of one pair."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from trmon_client.core.arrays.backend import Array
from trmon_client.core.columns.columns import Columns
from trmon_client.core.columns.schema import Pair
from trmon_client.core.policies.bound_checks import check_choice, check_order, checked_bound, comparable_bound
from trmon_client.core.policies.pair_choice import PairChoice as PairChoice
from trmon_client.core.policies.pair_choice import resolve_pair
from trmon_client.core.policies.sequence_statistics import STATISTICS, PolicyError, SequenceStatistic

Where = Literal["advantage_negative", "advantage_positive", "kl_exact", "kl_lower_bound", "kl_not_exact"]
"""When a criterion applies: to sequences whose advantage has a sign, or depending on `kl_is` of its pair."""

_KEYS = ("statistic", "pair", "lower", "upper", "where")


@dataclass(frozen=True, slots=True)
class Criterion:
    """Bounds on a statistic: lower <= statistic <= upper, inclusive; either may be absent, and NaN fails.

    Errors: PolicyError naming the invalid value and the allowed ones.
    Source: formulas, section 6.
    """

    statistic: str
    pair: PairChoice = "primary"
    lower: float | None = None
    upper: float | None = None
    where: Where | None = None
    lower_compared: float | None = field(init=False, repr=False, compare=False)
    upper_compared: float | None = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_choice("statistic", self.statistic, allowed=tuple(STATISTICS))
        check_choice("pair", self.pair, allowed=get_args(PairChoice))
        if self.where is not None:
            check_choice("where", self.where, allowed=get_args(Where))
        is_ratio = self.measured.is_ratio
        for key in ("lower", "upper"):
            bound = checked_bound(key, getattr(self, key), of=self.statistic, is_ratio=is_ratio)
            object.__setattr__(self, key, bound)
            object.__setattr__(self, f"{key}_compared", comparable_bound(bound, is_ratio=is_ratio))
        if self.lower is None and self.upper is None:
            raise PolicyError(f"{self.statistic}: a criterion needs lower, upper or both")
        check_order(self.lower, self.upper, of=self.statistic)

    @classmethod
    def parse(cls, spec: Mapping[str, Any]) -> Criterion:
        """Return the criterion of a spec. Errors: PolicyError."""
        if not isinstance(spec, Mapping):
            raise PolicyError(f"a criterion must be a mapping, got {type(spec).__name__}")
        unknown = [str(key)[:64] for key in spec if key not in _KEYS]
        if unknown:
            raise PolicyError(f"unknown key {', '.join(unknown[:4])}; allowed: {', '.join(_KEYS)}")
        if "statistic" not in spec:
            raise PolicyError("a criterion needs a statistic")
        return cls(**spec)

    def spec(self) -> dict[str, Any]:
        """Return the canonical spec: every key, with the bounds as given."""
        return {key: getattr(self, key) for key in _KEYS}

    @property
    def measured(self) -> SequenceStatistic:
        """The bounded statistic."""
        return STATISTICS[self.statistic]

    @property
    def by_advantage(self) -> bool:
        """Whether it applies to sequences whose advantage has a sign."""
        return self.where in ("advantage_negative", "advantage_positive")

    def has_sign(self, advantage: Array) -> Array:
        """Return where it applies by the sign of the advantage, bool; NaN has no sign."""
        return advantage > 0 if self.where == "advantage_positive" else advantage < 0

    def resolve(self, columns: Columns) -> Pair | None:
        """Return the pair to read; None if the columns have none. Errors: PolicyError if they have others only."""
        return None if not columns.pairs else resolve_pair(self.pair, columns.pairs, reader=self.statistic)

    def applies(self, columns: Columns, pair: Pair | None) -> bool:
        """Return whether the batch has a pair to read, and its KL columns match `where`.

        The KL of another pair counts as sampled.
        """
        if pair is None and self.measured.is_of_pair:
            return False
        kl_is = columns.kl_is if columns.kl_pair == pair else "sampled"
        if self.where == "kl_exact":
            return kl_is == "exact"
        if self.where == "kl_lower_bound":
            return kl_is == "lower_bound"
        return self.where != "kl_not_exact" or kl_is != "exact"
