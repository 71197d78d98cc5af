"""One criterion of acceptance: bounds on one per-sequence statistic of one pair, checked once, when it is made."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, cast, get_args

from trmon_client.core.columns import Columns
from trmon_client.core.ratios import RATIOS
from trmon_client.core.schema import Pair
from trmon_client.core.sequence_statistics import STATISTICS, PolicyError, SequenceStatistic

PairChoice = Literal["primary", "mismatch", "staleness", "total", "mismatch_or_primary"]
"""Which pair a criterion reads; `primary` and `mismatch_or_primary` depend on the pairs at hand."""

Where = Literal["advantage_negative", "kl_exact", "kl_lower_bound", "kl_not_exact"]
"""When a criterion applies: to sequences of negative advantage, or by what the KL columns of its pair are."""

_KEYS = ("statistic", "pair", "lower", "upper", "where")


@dataclass(frozen=True, slots=True)
class Criterion:
    """lower <= statistic <= upper, inclusive; either bound may be absent, and NaN fails.

    Errors: PolicyError naming what is wrong and what is allowed.
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
        _choice("statistic", self.statistic, tuple(STATISTICS))
        _choice("pair", self.pair, get_args(PairChoice))
        if self.where is not None:
            _choice("where", self.where, get_args(Where))
        lower, upper = self._bound("lower"), self._bound("upper")
        if lower is None and upper is None:
            raise PolicyError(f"{self.statistic}: a criterion needs lower, upper or both")
        if lower is not None and upper is not None and lower > upper:
            raise PolicyError(f"{self.statistic}: lower ({lower:g}) must not be above upper ({upper:g})")
        object.__setattr__(self, "lower", lower)
        object.__setattr__(self, "upper", upper)
        object.__setattr__(self, "lower_compared", self._compared(lower))
        object.__setattr__(self, "upper_compared", self._compared(upper))

    @classmethod
    def parse(cls, spec: Mapping[str, Any]) -> Criterion:
        """Return the criterion a spec describes. Errors: PolicyError."""
        if not isinstance(spec, Mapping):
            raise PolicyError(f"a criterion must be a mapping, and is {type(spec).__name__}")
        unknown = [str(key)[:64] for key in spec if key not in _KEYS]
        if unknown:
            raise PolicyError(f"unknown key {', '.join(unknown[:4])}; allowed: {', '.join(_KEYS)}")
        if "statistic" not in spec:
            raise PolicyError("a criterion needs a statistic")
        return cls(**spec)

    def spec(self) -> dict[str, Any]:
        """Return the canonical form: every key, bounds as given."""
        return {key: getattr(self, key) for key in _KEYS}

    @property
    def measured(self) -> SequenceStatistic:
        """The statistic that is bounded."""
        return STATISTICS[self.statistic]

    def resolve(self, columns: Columns) -> Pair:
        """Return the pair to read. Errors: PolicyError if these columns lack it."""
        if self.pair == "primary":
            return columns.primary
        if self.pair == "mismatch_or_primary":
            return "mismatch" if "mismatch" in columns.pairs else columns.primary
        if self.pair in columns.pairs:
            return self.pair
        needed, at_hand = " and ".join(RATIOS[self.pair]), ", ".join(columns.pairs)
        raise PolicyError(f"{self.statistic} of {self.pair} needs {needed}; the pairs at hand are {at_hand}")

    def applies(self, columns: Columns, pair: Pair) -> bool:
        """Whether the batch's KL columns are what `where` asks for; another pair's KL says nothing of this one."""
        kl_is = columns.kl_is if columns.kl_pair == pair else "sampled"
        if self.where == "kl_exact":
            return kl_is == "exact"
        if self.where == "kl_lower_bound":
            return kl_is == "lower_bound"
        return self.where != "kl_not_exact" or kl_is != "exact"

    def _bound(self, key: str) -> float | None:
        bound = getattr(self, key)
        if bound is None:
            return None
        if isinstance(bound, bool) or not isinstance(bound, int | float):
            raise PolicyError(f"{self.statistic}: {key} must be a number, and is {type(bound).__name__}")
        if not abs(bound) <= sys.float_info.max:
            raise PolicyError(f"{self.statistic}: {key} must be finite; leave it out for no bound")
        if self.measured.is_ratio and bound <= 0:
            raise PolicyError(f"{self.statistic}: {key} bounds a ratio and must be above 0, and is {bound:g}")
        # Adding zero makes -0.0 the zero it equals, for hashes are of its text.
        return float(bound) + 0.0

    def _compared(self, bound: float | None) -> float | None:
        return math.log(bound) if bound is not None and self.measured.is_ratio else bound


def _choice(key: str, value: object, allowed: tuple[str, ...]) -> None:
    if not isinstance(value, str) or value not in allowed:
        raise PolicyError(f"{key} must be one of {', '.join(allowed)}, and is {cast(str, value)!r:.64}")
