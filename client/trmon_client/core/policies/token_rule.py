"""A token rule: a policy's mask or weight for single tokens.

The columns do not hold single tokens, so rules run in the trainer, where the log-probs are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, get_args

from trmon_client.core.columns.schema import PAIRS, Pair
from trmon_client.core.policies.bound_checks import check_choice, check_order, checked_bound, comparable_bound
from trmon_client.core.policies.pair_choice import PairChoice, resolve_pair
from trmon_client.core.policies.sequence_statistics import PolicyError

_KEYS = ("rule", "pair", "lower", "upper")


@dataclass(frozen=True, slots=True)
class TokenRuleKind:
    """The kind of a rule: with `is_ratio` its bounds apply to a ratio, with `is_weight` it weights tokens.

    An `is_optional` rule has no effect where its pair is not available.
    """

    is_ratio: bool
    has_lower: bool
    is_weight: bool
    description: str
    source: str
    is_optional: bool = False


TOKEN_RULES: dict[str, TokenRuleKind] = {
    "token_k1": TokenRuleKind(True, True, False, "mask tokens whose rho is outside the bounds", "verl, sign as [K]"),
    "token_k2": TokenRuleKind(False, False, False, "mask tokens whose d^2/2 exceeds upper", "verl"),
    "token_k3": TokenRuleKind(False, False, False, "mask tokens whose rho - 1 - d exceeds upper", "verl"),
    "icepop": TokenRuleKind(True, True, True, "weight by rho within the bounds, mask outside them", "[ICEPOP]"),
    "tis": TokenRuleKind(True, False, True, "weight by min(rho, upper)", "verl"),
    "seq_tis": TokenRuleKind(True, False, True, "weight by min(exp S, upper)", "verl"),
    "seq_mis": TokenRuleKind(True, False, True, "weight by exp S up to upper, mask above it", "[3P]", is_optional=True),
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
        if self.upper is None or (self.lower is None) == self.kind.has_lower:
            raise PolicyError(f"{self.rule} takes {'lower and upper' if self.kind.has_lower else 'upper alone'}")
        if self.upper <= 0:
            raise PolicyError(f"{self.rule}: upper must be above 0, got {self.upper:g}")
        check_order(self.lower, self.upper, of=self.rule)

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

    def resolve(self, pairs: tuple[Pair, ...]) -> Pair | None:
        """Return the pair to read, None for an optional rule without it. Errors: PolicyError if it is not available."""
        if self.kind.is_optional and self.pair in PAIRS and self.pair not in pairs:
            return None
        return resolve_pair(self.pair, pairs, reader=self.rule)
