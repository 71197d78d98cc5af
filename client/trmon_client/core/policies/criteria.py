"""Criteria of a policy: bounds on a statistic of each sequence, of each turn, or of each token.

Criteria decide on sequences and turns from the columns. The columns do not hold single tokens, so rules for tokens run
in the trainer, where the log-probs are.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, TypeVar, cast, get_args

from trmon_client.core.arrays import Array
from trmon_client.core.column_schema import PAIRS, Pair, primary
from trmon_client.core.columns import Columns, TurnColumns
from trmon_client.core.inputs.checked_inputs import POLICIES
from trmon_client.core.policies.sequence_statistics import STATISTICS, PairView, PolicyError, SequenceStatistic
from trmon_client.core.reduction.token_terms import RATIOS, clipped_pair

PairChoice = Literal["primary", "mismatch", "staleness", "total", "mismatch_or_primary", "staleness_or_primary"]
"""`primary` and the last two depend on the available pairs; `staleness_or_primary` is PPO's ratio."""

NEEDS_PAIR = f"needs two of the log-probs {', '.join(POLICIES)}, which were not given for this batch"


def resolve_pair(choice: PairChoice, pairs: tuple[Pair, ...], *, reader: str) -> Pair:
    """Return the pair to read.

    Args: pairs: the available pairs; reader: the name of the statistic or rule, for the error.
    Errors: PolicyError if a named pair is not available, or if there is none.
    Source: formulas, sections 1 and 6.
    """
    if not pairs:
        raise PolicyError(f"{reader} {NEEDS_PAIR}")
    if choice == "primary":
        return primary(pairs)
    if choice == "mismatch_or_primary":
        return "mismatch" if "mismatch" in pairs else primary(pairs)
    if choice == "staleness_or_primary":
        return clipped_pair(pairs)
    if choice in pairs:
        return choice
    needed, available = " and ".join(RATIOS[choice]), ", ".join(pairs)
    raise PolicyError(f"{reader} of {choice} needs {needed}; the available pairs are {available}")


def checked_bound(key: str, bound: Any, *, of: str, is_ratio: bool) -> float | None:
    """Return a bound as the float used in comparisons and hashes; None means no bound.

    Args: of: the name of the bounded statistic, for the error; is_ratio: the bound must be above 0.
    Errors: PolicyError unless the bound is a finite number, above 0 for a ratio.
    """
    if bound is None:
        return None
    if isinstance(bound, bool) or not isinstance(bound, int | float):
        raise PolicyError(f"{of}: {key} must be a number, got {type(bound).__name__}")
    if not abs(bound) <= sys.float_info.max:
        raise PolicyError(f"{of}: {key} must be finite; omit it for no bound")
    if is_ratio and bound <= 0:
        raise PolicyError(f"{of}: {key} bounds a ratio and must be above 0, got {bound:g}")
    # Adding zero turns -0.0 into 0.0, because the hash covers the text of the number.
    return float(bound) + 0.0


AnyBounds = TypeVar("AnyBounds", bound="Bounds")


class Bounds:
    """The base of criteria and rules: bounds, inclusive, on what `named` names for a pair.

    `KIND` is its name in errors; `KEYS` are those of its spec, the first of them that which names what is bounded.
    """

    __slots__ = ()
    KIND: ClassVar[str]
    KEYS: ClassVar[tuple[str, ...]]
    ALLOWED: ClassVar[Mapping[str, Any]]

    pair: PairChoice
    lower: float | None
    upper: float | None
    lower_compared: float | None
    upper_compared: float | None

    @classmethod
    def parse(cls: type[AnyBounds], spec: Mapping[str, Any]) -> AnyBounds:
        """Return the criterion or rule of a spec. Errors: PolicyError."""
        if not isinstance(spec, Mapping):
            raise PolicyError(f"a {cls.KIND} must be a mapping, got {type(spec).__name__}")
        unknown = [str(key)[:64] for key in spec if key not in cls.KEYS]
        if unknown:
            raise PolicyError(f"unknown key {', '.join(unknown[:4])}; allowed: {', '.join(cls.KEYS)}")
        if cls.KEYS[0] not in spec:
            raise PolicyError(f"a {cls.KIND} needs a {cls.KEYS[0]}")
        return cls(**spec)

    def spec(self) -> dict[str, Any]:
        """Return the canonical spec: every key, with the bounds as given."""
        return {key: getattr(self, key) for key in self.KEYS}

    @property
    def named(self) -> str:
        """The name of the statistic or the rule."""
        name: str = getattr(self, self.KEYS[0])
        return name

    @property
    def is_ratio(self) -> bool:
        """Whether the bounds apply to a ratio, which is compared as a log, so that all hosts agree to the last bit."""
        return False

    def __post_init__(self) -> None:
        check_choice(self.KEYS[0], self.named, allowed=tuple(self.ALLOWED))
        check_choice("pair", self.pair, allowed=get_args(PairChoice))
        for key in ("lower", "upper"):
            bound = checked_bound(key, getattr(self, key), of=self.named, is_ratio=self.is_ratio)
            object.__setattr__(self, key, bound)
            compared = math.log(bound) if bound is not None and self.is_ratio else bound
            object.__setattr__(self, f"{key}_compared", compared)
        self._check_given()
        if self.lower is not None and self.upper is not None and self.lower > self.upper:
            raise PolicyError(f"{self.named}: lower ({self.lower:g}) must not be above upper ({self.upper:g})")

    def _check_given(self) -> None:
        """Check which bounds are given. Errors: PolicyError."""
        if self.lower is None and self.upper is None:
            raise PolicyError(f"{self.named}: a criterion needs lower, upper or both")

    def is_met(self, compared: Array) -> Array:
        """Return where a statistic, as logs for ratios, meets the bounds, bool; NaN never does: it compares false."""
        if self.lower_compared is None:
            return compared <= self.upper_compared
        met = compared >= self.lower_compared
        return met if self.upper_compared is None else met & (compared <= self.upper_compared)


def check_choice(key: str, value: object, *, allowed: tuple[str, ...]) -> None:
    """Check that a value is one of the allowed ones. Errors: PolicyError naming the key and the allowed values."""
    if not isinstance(value, str) or value not in allowed:
        raise PolicyError(f"{key} must be one of {', '.join(allowed)}, got {cast(str, value)!r:.64}")


Where = Literal["advantage_negative", "advantage_positive", "kl_exact", "kl_lower_bound", "kl_not_exact"]
"""When a criterion applies: to sequences whose advantage has a sign, or depending on `kl_is` of its pair."""


@dataclass(frozen=True, slots=True)
class Criterion(Bounds):
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

    KIND: ClassVar = "criterion"
    KEYS: ClassVar = ("statistic", "pair", "lower", "upper", "where")
    ALLOWED: ClassVar = STATISTICS

    def __post_init__(self) -> None:
        if self.where is not None:
            check_choice("where", self.where, allowed=get_args(Where))
        Bounds.__post_init__(self)

    @property
    def is_ratio(self) -> bool:
        return self.measured.is_ratio

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


TURN_STATISTICS: dict[str, Callable[[TurnColumns, Pair], Array]] = {
    "turn_max_abs_d": lambda turns, pair: turns.of_pair(pair, "max_abs_d"),
    "turn_mean_k1": lambda turns, pair: -turns.of_pair(pair, "sum_d") / turns.n_tokens,
    "turn_mean_k3": lambda turns, pair: turns.of_pair(pair, "sum_k3") / turns.n_tokens,
    "turn_mean_binary_kl": lambda turns, pair: turns.of_pair(pair, "sum_binary_kl") / turns.n_tokens,
}
"""The statistics of a turn by name, read as [R] float64, with + - x / only. Source: formulas, section 6."""

TURN_ARGUMENTS = ("turn_ids", "turn_offsets")
"""The arguments of `log_batch` that give the turns, one of which a turn criterion needs."""


@dataclass(frozen=True, slots=True)
class TurnCriterion(Bounds):
    """Bounds on a statistic of a turn: lower <= statistic <= upper, inclusive; either may be absent, and NaN fails.

    Errors: PolicyError naming the invalid value and the allowed ones.
    Source: formulas, section 6.
    """

    statistic: str
    pair: PairChoice = "primary"
    lower: float | None = None
    upper: float | None = None
    lower_compared: float | None = field(init=False, repr=False, compare=False)
    upper_compared: float | None = field(init=False, repr=False, compare=False)

    KIND: ClassVar = "turn criterion"
    KEYS: ClassVar = ("statistic", "pair", "lower", "upper")
    ALLOWED: ClassVar = TURN_STATISTICS

    def read(self, turns: TurnColumns, pair: Pair) -> Array:
        """Return the statistic of each turn, [R] float64."""
        return TURN_STATISTICS[self.statistic](turns, pair)

    def resolve(self, pairs: tuple[Pair, ...]) -> Pair:
        """Return the pair to read. Errors: PolicyError if it is not available."""
        return resolve_pair(self.pair, pairs, reader=self.statistic)


@dataclass(frozen=True, slots=True)
class TokenRuleKind:
    """The kind of a rule: with `is_ratio` its bounds apply to a ratio, with `is_weight` it weights tokens.

    `bounds` are those that it requires, `may_bound` others that it takes. An `is_optional` rule has no effect where its
    pair is not available. `by_advantage`: it needs each token's advantage. `is_signed`: lower is below 0, upper above.
    `is_of_batch`: whether it keeps a token depends on the other tokens of the call.
    """

    is_ratio: bool
    bounds: tuple[str, ...]
    is_weight: bool
    description: str
    source: str
    may_bound: tuple[str, ...] = ()
    is_optional: bool = False
    by_advantage: bool = False
    is_signed: bool = False
    is_of_batch: bool = False

    @property
    def takes(self) -> tuple[str, ...]:
        """The bounds that a rule of this kind takes, in order."""
        return tuple(key for key in ("lower", "upper") if key in self.bounds + self.may_bound)


_UPPER, _BOTH = ("upper",), ("lower", "upper")
_TAKEN = {(): "no bounds", _UPPER: "upper alone", _BOTH: "lower and upper"}

TOKEN_RULES: dict[str, TokenRuleKind] = {
    "token_k1": TokenRuleKind(True, _BOTH, False, "mask tokens whose rho is outside the bounds", "verl, sign as [K]"),
    "token_k2": TokenRuleKind(False, _UPPER, False, "mask tokens whose d^2/2 exceeds upper", "verl"),
    "token_k3": TokenRuleKind(False, _UPPER, False, "mask tokens whose rho - 1 - d exceeds upper", "verl"),
    "icepop": TokenRuleKind(True, _BOTH, True, "weight by rho within the bounds, mask outside them", "[ICEPOP]"),
    "tis": TokenRuleKind(True, _UPPER, True, "weight by min(rho, upper)", "verl"),
    "seq_tis": TokenRuleKind(True, _UPPER, True, "weight by min(exp S, upper)", "verl"),
    "seq_mis": TokenRuleKind(
        True,
        _UPPER,
        True,
        "weight by exp S within the bounds, mask outside them",
        "[3P]",
        may_bound=("lower",),
        is_optional=True,
    ),
    "dppo": TokenRuleKind(
        False,
        _BOTH,
        True,
        "weight by min(rho, 20); mask where A > 0 and p - q > upper, or A <= 0 and p - q < lower",
        "[DPPO], binary TV",
        by_advantage=True,
        is_signed=True,
    ),
    "dppo_kl": TokenRuleKind(
        False,
        _BOTH,
        True,
        "weight by min(rho, 20); mask where A > 0, p > q and KL(q||p) > upper, or A <= 0, p < q and KL(q||p) > -lower",
        "[DPPO], binary KL",
        by_advantage=True,
        is_signed=True,
    ),
    "m2po": TokenRuleKind(
        False,
        _UPPER,
        False,
        "mask the largest d^2 until the mean d^2 of the kept tokens of the call is < upper; keep one",
        "[M2PO]",
        is_of_batch=True,
    ),
    "cispo": TokenRuleKind(True, _UPPER, True, "weight by min(rho, upper), upper = 1 + eps_high", "[CISPO]"),
    "gspo": TokenRuleKind(True, (), True, "weight by exp(S/T)", "[GSPO]"),
}
"""The token rules by name. Source: formulas, section 6."""


@dataclass(frozen=True, slots=True)
class TokenRule(Bounds):
    """One rule of `TOKEN_RULES` with its bounds, inclusive; every bound of the rule is required.

    Errors: PolicyError naming the invalid value and the allowed ones.
    Source: formulas, section 6.
    """

    rule: str
    pair: PairChoice = "mismatch_or_primary"
    lower: float | None = None
    upper: float | None = None
    lower_compared: float | None = field(init=False, repr=False, compare=False)
    upper_compared: float | None = field(init=False, repr=False, compare=False)

    KIND: ClassVar = "token rule"
    KEYS: ClassVar = ("rule", "pair", "lower", "upper")
    ALLOWED: ClassVar = TOKEN_RULES

    @property
    def is_ratio(self) -> bool:
        return self.kind.is_ratio

    @property
    def kind(self) -> TokenRuleKind:
        """The kind of the rule."""
        return TOKEN_RULES[self.rule]

    def check_columns(self, columns: Columns) -> None:
        """Check that the rule can be applied to the batch of these columns, which have a pair.

        Errors: PolicyError naming the argument that is missing.
        """
        self.resolve(columns.pairs)
        if self.kind.by_advantage:
            PairView(columns, None).of_sequence("advantage")

    def resolve(self, pairs: tuple[Pair, ...]) -> Pair | None:
        """Return the pair to read, None for an optional rule without it. Errors: PolicyError if it is not available."""
        if self.kind.is_optional and self.pair in PAIRS and self.pair not in pairs:
            return None
        return resolve_pair(self.pair, pairs, reader=self.rule)

    def _check_given(self) -> None:
        given = {key for key in _BOTH if getattr(self, key) is not None}
        if not set(self.kind.bounds) <= given <= set(self.kind.takes):
            raise PolicyError(f"{self.rule} takes {_TAKEN[self.kind.takes]}")
        if self.upper is not None and self.upper <= 0:
            raise PolicyError(f"{self.rule}: upper must be above 0, got {self.upper:g}")
        if self.kind.is_signed and self.lower is not None and self.lower >= 0:
            raise PolicyError(f"{self.rule}: lower must be below 0, got {self.lower:g}")
