"""A token rule: a policy's mask or weight for single tokens.

The columns do not hold single tokens, so rules run in the trainer, where the log-probs are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, get_args

from trmon_client.core.columns.columns import Columns
from trmon_client.core.columns.schema import PAIRS, Pair
from trmon_client.core.policies.bound_checks import check_choice, check_order, checked_bound, comparable_bound
from trmon_client.core.policies.pair_choice import PairChoice, resolve_pair
from trmon_client.core.policies.sequence_statistics import PairView, PolicyError

_KEYS = ("rule", "pair", "lower", "upper")


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
class TokenRule:
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

    def __post_init__(self) -> None:
        check_choice("rule", self.rule, allowed=tuple(TOKEN_RULES))
        check_choice("pair", self.pair, allowed=get_args(PairChoice))
        is_ratio = self.kind.is_ratio
        for key in ("lower", "upper"):
            bound = checked_bound(key, getattr(self, key), of=self.rule, is_ratio=is_ratio)
            object.__setattr__(self, key, bound)
            object.__setattr__(self, f"{key}_compared", comparable_bound(bound, is_ratio=is_ratio))
        self._check_bounds()
        check_order(self.lower, self.upper, of=self.rule)

    def _check_bounds(self) -> None:
        given = {key for key in _BOTH if getattr(self, key) is not None}
        if not set(self.kind.bounds) <= given <= set(self.kind.takes):
            raise PolicyError(f"{self.rule} takes {_TAKEN[self.kind.takes]}")
        if self.upper is not None and self.upper <= 0:
            raise PolicyError(f"{self.rule}: upper must be above 0, got {self.upper:g}")
        if self.kind.is_signed and self.lower is not None and self.lower >= 0:
            raise PolicyError(f"{self.rule}: lower must be below 0, got {self.lower:g}")

    @classmethod
    def parse(cls, spec: Mapping[str, Any]) -> TokenRule:
        """Return the rule of a spec. Errors: PolicyError."""
        if not isinstance(spec, Mapping):
            raise PolicyError(f"a token rule must be a mapping, got {type(spec).__name__}")
        unknown = [str(key)[:64] for key in spec if key not in _KEYS]
        if unknown:
            raise PolicyError(f"unknown key {', '.join(unknown[:4])}; allowed: {', '.join(_KEYS)}")
        if "rule" not in spec:
            raise PolicyError("a token rule needs a rule")
        return cls(**spec)

    def spec(self) -> dict[str, Any]:
        """Return the canonical spec: every key, with the bounds as given."""
        return {key: getattr(self, key) for key in _KEYS}

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
