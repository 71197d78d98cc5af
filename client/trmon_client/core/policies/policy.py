"""A policy: criteria for sequences, rules for tokens, a name, and the content hash by which reports call it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache, cached_property, lru_cache
from typing import Any, TypeVar

from trmon_client.core.columns.schema import PAIRS
from trmon_client.core.policies import verl_options
from trmon_client.core.policies.criterion import Criterion, PairChoice
from trmon_client.core.policies.presets import TOKEN_POLICIES, PresetBounds, preset_criteria, preset_token_rule
from trmon_client.core.policies.sequence_statistics import PolicyError
from trmon_client.core.policies.token_rule import TokenRule
from trmon_client.core.reduction.kl_estimators import RATIOS

Rule = TypeVar("Rule", Criterion, TokenRule)

MAX_CRITERIA = 32
MAX_TOKEN_RULES = 8
MAX_NAME_LENGTH = 128
REMEMBERED_POLICIES = 256


@dataclass(frozen=True)
class Policy:
    """Which sequences may teach: those that meet every criterion; and of those, which tokens, and how much.

    A policy of token rules alone accepts every sequence that is neither empty nor invalid.
    Errors: PolicyError for a name or a number of criteria or rules out of bounds.
    """

    name: str
    criteria: tuple[Criterion, ...]
    tokens: tuple[TokenRule, ...] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not 0 < len(self.name) <= MAX_NAME_LENGTH or not self.name.isprintable():
            raise PolicyError(f"name must be text of 1 to {MAX_NAME_LENGTH} printable characters")
        if len(self.criteria) > MAX_CRITERIA or not (self.criteria or self.tokens):
            raise PolicyError(f"a policy has 1 to {MAX_CRITERIA} criteria, and this one {len(self.criteria)}")
        if len(self.tokens) > MAX_TOKEN_RULES:
            raise PolicyError(f"a policy has at most {MAX_TOKEN_RULES} token rules, and this one {len(self.tokens)}")
        weighing = [rule.rule for rule in self.tokens if rule.kind.is_weight]
        if len(weighing) > 1:
            raise PolicyError(f"a policy weighs tokens by one rule at most, and this one by {' and '.join(weighing)}")

    @classmethod
    def parse(cls, policy: str | Mapping[str, Any]) -> Policy:
        """Return the policy of a preset's name, of a spec, or of verl's options (`verl_options.KEYS`).

        Errors: PolicyError saying what is wrong and what is allowed.
        """
        if isinstance(policy, str):
            return preset(policy)
        if not isinstance(policy, Mapping):
            raise PolicyError(f"a policy must be a preset's name or a mapping, and is {type(policy).__name__}")
        if policy.keys() & verl_options.KEYS:
            return cls(*verl_options.rules_from_verl(policy))
        if not {"name", "criteria"} <= policy.keys() <= {"name", "criteria", "tokens"}:
            keys = ", ".join(str(key)[:64] for key in list(policy)[:8])
            raise PolicyError(
                f"a policy has the keys name and criteria, and this one {keys or 'none'}; tokens is allowed"
            )
        return cls(
            policy["name"],
            _parsed("criteria", policy["criteria"], parse=Criterion.parse, limit=MAX_CRITERIA),
            _parsed("tokens", policy.get("tokens", ()), parse=TokenRule.parse, limit=MAX_TOKEN_RULES),
        )

    def spec(self) -> dict[str, Any]:
        """Return the canonical form, JSON-able: `parse(spec())` is this policy."""
        spec: dict[str, Any] = {"name": self.name, "criteria": [criterion.spec() for criterion in self.criteria]}
        # Absent where there are none, as it was before there were any: hashes are of the spec.
        return {**spec, "tokens": [rule.spec() for rule in self.tokens]} if self.tokens else spec

    @cached_property
    def hash(self) -> str:
        """The 32 hex digits of BLAKE2b over the canonical JSON of the spec."""
        return hashlib.blake2b(self.canonical.encode(), digest_size=16).hexdigest()

    @cached_property
    def canonical(self) -> str:
        """The JSON of the spec, of which there is one for each policy."""
        return json.dumps(self.spec(), sort_keys=True, separators=(",", ":"), allow_nan=False)

    def __reduce__(self) -> tuple[Callable[[str], Policy], tuple[str]]:
        """Between processes, a policy travels as its text: what is made of the same text there is one policy."""
        return _of_canonical, (self.canonical,)

    @cached_property
    def needs(self) -> tuple[str, ...]:
        """The arguments of `statistics.columns` without which `decide` raises, beside two of the log-probs."""
        of_criteria = [argument for criterion in self.criteria for argument in _needs(criterion)]
        of_tokens = [argument for rule in self.tokens for argument in _policies_of(rule.pair)]
        return tuple(dict.fromkeys((*of_criteria, *of_tokens)))


@lru_cache(REMEMBERED_POLICIES)
def _of_canonical(text: str) -> Policy:
    return Policy.parse(json.loads(text))


def preset(name: str, *, delta: float | None = None, lower: float | None = None, upper: float | None = None) -> Policy:
    """Return a published policy, its bounds moved by the keywords it takes.

    Returns: named as the preset at default bounds, else with the bounds: `trm_max(delta=0.02)`.
    Errors: PolicyError for an unknown name, a keyword it does not take, or a bound out of range.
    Source: formulas, section 6.
    """
    bounds = PresetBounds(delta, lower, upper)
    if not bounds.given():
        return _published(name)
    moved, own = _preset(name, bounds), _published(name)
    if moved == own:
        return own
    return replace(moved, name=f"{name}({', '.join(f'{key}={bound:g}' for key, bound in bounds.given().items())})")


@cache
def _published(name: str) -> Policy:
    """One for all runs that are judged by it: made once, and in the processor's caches."""
    return _preset(name, PresetBounds())


def _preset(name: str, bounds: PresetBounds) -> Policy:
    if name in TOKEN_POLICIES:
        return Policy(name, (), (preset_token_rule(name, bounds),))
    return Policy(name, preset_criteria(name, bounds))


def _parsed(key: str, specs: Any, *, parse: Callable[[Mapping[str, Any]], Rule], limit: int) -> tuple[Rule, ...]:
    if not isinstance(specs, list | tuple):
        raise PolicyError(f"{key} must be a list, and is {type(specs).__name__}")
    if len(specs) > limit:
        raise PolicyError(f"a policy has 1 to {limit} {key}, and this one {len(specs)}")
    return tuple(_parsed_one(f"{key}[{index}]", spec, parse=parse) for index, spec in enumerate(specs))


def _parsed_one(place: str, spec: Mapping[str, Any], *, parse: Callable[[Mapping[str, Any]], Rule]) -> Rule:
    try:
        return parse(spec)
    except PolicyError as error:
        raise PolicyError(f"{place}: {error}") from None


def _needs(criterion: Criterion) -> tuple[str, ...]:
    """A criterion that only applies to exact or bounded KL needs nothing: without logits it does not apply."""
    pair = _policies_of(criterion.pair)
    if criterion.where in ("kl_exact", "kl_lower_bound"):
        return pair
    if criterion.where == "advantage_negative":
        return (*pair, *criterion.measured.needs, "advantages")
    return (*pair, *criterion.measured.needs)


def _policies_of(choice: PairChoice) -> tuple[str, ...]:
    return RATIOS[choice] if choice in PAIRS else ()
