"""A policy: criteria for sequences, rules for tokens, a name, and the content hash that reports refer to."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache, cached_property, lru_cache
from typing import Any, TypeVar

from trmon_client.core.column_schema import PAIRS
from trmon_client.core.policies import presets
from trmon_client.core.policies.calibration import Calibration, parse_calibration
from trmon_client.core.policies.criteria import (
    TURN_ARGUMENTS,
    Criterion,
    PairChoice,
    TokenRule,
    TurnCriterion,
    checked_bound,
)
from trmon_client.core.policies.sequence_statistics import PolicyError
from trmon_client.core.reduction.token_terms import RATIOS

Rule = TypeVar("Rule", Criterion, TokenRule, TurnCriterion)

MAX_CRITERIA = 32
MAX_TOKEN_RULES = 8
MAX_TURN_CRITERIA = 8
MAX_NAME_LENGTH = 128
MAX_CACHED_POLICIES = 256

_KEYS = {"name", "criteria", "tokens", "turns", "calibrate", "soft_tau"}


@dataclass(frozen=True)
class Policy:
    """Criteria that a sequence must all meet to stay in the loss, and rules for its turns and tokens.

    `tokens` mask or weight single tokens; a turn that fails one of the criteria `turns` masks its own tokens only.
    Without criteria it accepts every sequence that is neither empty nor invalid. With `calibrate`, the
    bounds are ceilings until the service has calibrated them; it is an order to the service and does not decide, so
    neither `hash` nor what trainers receive contains it. With `soft_tau`, the policy is soft: a sequence that criteria
    reject keeps the weight exp(-excess/soft_tau) in the loss (`decision.soft_weights`).
    Errors: PolicyError for an invalid name, too many criteria or rules, or a tau without criteria.
    """

    name: str
    criteria: tuple[Criterion, ...]
    tokens: tuple[TokenRule, ...] = ()
    calibrate: Calibration | None = None
    turns: tuple[TurnCriterion, ...] = ()
    soft_tau: float | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not 0 < len(self.name) <= MAX_NAME_LENGTH or not self.name.isprintable():
            raise PolicyError(f"name must be text of 1 to {MAX_NAME_LENGTH} printable characters")
        for key, found, limit in (
            ("criteria", self.criteria, MAX_CRITERIA),
            ("tokens", self.tokens, MAX_TOKEN_RULES),
            ("turns", self.turns, MAX_TURN_CRITERIA),
        ):
            if len(found) > limit:
                raise PolicyError(f"a policy has at most {limit} {key}, got {len(found)}")
        weighting = [rule.rule for rule in self.tokens if rule.kind.is_weight]
        if len(weighting) > 1:
            raise PolicyError(f"a policy has at most one rule that weights tokens, got {' and '.join(weighting)}")
        object.__setattr__(self, "soft_tau", checked_bound("tau", self.soft_tau, of="soft_tau", is_ratio=True))
        if self.soft_tau is not None and (not self.criteria or "seq_mis" in weighting):
            raise PolicyError("soft_tau needs criteria, and no rule seq_mis, which masks the sequences that it softens")

    @classmethod
    def parse(cls, policy: str | Mapping[str, Any]) -> Policy:
        """Return the policy of a preset name, a spec, or verl's options (`presets.KEYS`).

        Errors: PolicyError naming the invalid value and the allowed ones.
        """
        if isinstance(policy, str):
            return preset(policy)
        if not isinstance(policy, Mapping):
            raise PolicyError(f"a policy must be the name of a preset or a mapping, got {type(policy).__name__}")
        if policy.keys() & presets.KEYS:
            return cls(*presets.rules_from_verl(policy))
        if {"name"} < policy.keys() <= {"name", "calibrate", "soft_tau"}:
            return _changed_preset(policy)
        if not {"name", "criteria"} <= policy.keys() <= _KEYS:
            keys = ", ".join(str(key)[:64] for key in list(policy)[:8])
            raise PolicyError(
                "a policy requires the keys name and criteria and allows tokens, turns, calibrate and soft_tau, "
                f"got {keys or 'none'}"
            )
        if policy["criteria"] in ([], ()) and not policy.keys() & {"tokens", "turns"}:
            raise PolicyError(
                f"a policy has 1 to {MAX_CRITERIA} criteria, got 0; with an empty list of tokens too, it accepts every "
                "valid sequence"
            )
        parsed = cls(
            policy["name"],
            _parse_list("criteria", policy["criteria"], parse=Criterion.parse, limit=MAX_CRITERIA),
            _parse_list("tokens", policy.get("tokens", ()), parse=TokenRule.parse, limit=MAX_TOKEN_RULES),
            turns=_parse_list("turns", policy.get("turns", ()), parse=TurnCriterion.parse, limit=MAX_TURN_CRITERIA),
            soft_tau=policy.get("soft_tau"),
        )
        if policy.get("calibrate") is None:
            return parsed
        criteria, calibrate = parse_calibration(policy["calibrate"], parsed.criteria)
        return replace(parsed, criteria=criteria, calibrate=calibrate)

    def spec(self) -> dict[str, Any]:
        """Return the canonical spec, which JSON can encode: `parse(spec())` equals this policy."""
        return self.decision_spec() | ({"calibrate": self.calibrate.spec()} if self.calibrate else {})

    def decision_spec(self) -> dict[str, Any]:
        """Return the part of the canonical spec that decides: what trainers receive and `hash` covers."""
        spec: dict[str, Any] = {"name": self.name, "criteria": [criterion.spec() for criterion in self.criteria]}
        # Omitted if not set: the hashes of policies from before tokens, turns and soft masking must not change.
        if self.tokens or not self.criteria:
            spec["tokens"] = [rule.spec() for rule in self.tokens]
        if self.turns:
            spec["turns"] = [criterion.spec() for criterion in self.turns]
        if self.soft_tau is not None:
            spec["soft_tau"] = self.soft_tau
        return spec

    @cached_property
    def hash(self) -> str:
        """The BLAKE2b hash of the canonical JSON of what decides, as 32 hex digits."""
        return hashlib.blake2b(_canonical_json(self.decision_spec()).encode(), digest_size=16).hexdigest()

    @cached_property
    def canonical(self) -> str:
        """The canonical JSON of the spec; equal policies have the same text."""
        return _canonical_json(self.spec())

    def __reduce__(self) -> tuple[Callable[[str], Policy], tuple[str]]:
        """Pickle the canonical JSON, so that a process unpickles equal policies into one cached object."""
        return _policy_of_canonical, (self.canonical,)

    @cached_property
    def needs(self) -> tuple[str, ...]:
        """The arguments of `statistics.columns` that `decide` requires besides two of the log-probs."""
        by_criteria = [argument for criterion in self.criteria for argument in _needs(criterion)]
        required = [rule for rule in self.tokens if not rule.kind.is_optional]
        by_token_rules = [argument for rule in required for argument in _log_probs_of(rule.pair)]
        by_token_rules += ["advantages" for rule in required if rule.kind.by_advantage]
        by_turns = [argument for criterion in self.turns for argument in _log_probs_of(criterion.pair)]
        turns = TURN_ARGUMENTS[:1] if self.turns else ()
        return tuple(dict.fromkeys((*by_criteria, *by_token_rules, *by_turns, *turns)))

    @property
    def reads_pair(self) -> bool:
        """Whether some criterion or rule compares two policies, and does not apply to fewer log-probs."""
        return bool(self.tokens or self.turns) or any(criterion.measured.is_of_pair for criterion in self.criteria)


@lru_cache(MAX_CACHED_POLICIES)
def _policy_of_canonical(text: str) -> Policy:
    return Policy.parse(json.loads(text))


def preset(
    name: str,
    *,
    delta: float | None = None,
    lower: float | None = None,
    upper: float | None = None,
    soft_tau: float | None = None,
) -> Policy:
    """Return a published policy, with its bounds changed by the keywords that it takes, soft with a tau.

    Returns: a policy named after the preset, with what was changed in the name: `trm_max(delta=0.02)`.
    Errors: PolicyError for an unknown name, a keyword that the preset does not take, or a bound or tau out of range.
    Source: formulas, section 6.
    """
    bounds = presets.PresetBounds(delta, lower, upper)
    changed, published = _preset(name, bounds) if bounds.given() else _published(name), _published(name)
    if changed == published and soft_tau is None:
        return published
    given = bounds.given() | ({} if soft_tau is None else {"soft_tau": soft_tau})
    changed = replace(changed, soft_tau=soft_tau)
    return replace(changed, name=f"{name}({', '.join(f'{key}={bound:g}' for key, bound in given.items())})")


def preset_names() -> tuple[str, ...]:
    """Return the names that `preset` knows."""
    return (*presets.PRESETS, *presets.TOKEN_POLICIES, *presets.VERL_PRESETS)


@cache
def _published(name: str) -> Policy:
    """Return the preset with its default bounds, one cached object for all runs."""
    return _preset(name, presets.PresetBounds())


def _preset(name: str, bounds: presets.PresetBounds) -> Policy:
    if name in presets.VERL_PRESETS:
        if bounds.given():
            raise PolicyError(f"{name} takes no bounds; give verl's options as a mapping to change them")
        return Policy(name, *presets.rules_from_verl(presets.VERL_PRESETS[name])[1:])
    if name in presets.TOKEN_POLICIES:
        return Policy(name, (), (presets.preset_token_rule(name, bounds),))
    criteria = presets.preset_criteria(name, bounds)
    published = presets.PRESETS[name]
    tokens = (presets.sequence_weight_rule(published.weights, criteria),) if published.weights else ()
    policy = Policy(name, criteria, tokens)
    return _calibrated(policy, {}) if published.is_calibrated else policy


def _changed_preset(spec: Mapping[str, Any]) -> Policy:
    if not isinstance(spec["name"], str):
        raise PolicyError(f"name must be that of a preset, got {type(spec['name']).__name__}")
    policy = preset(spec["name"], soft_tau=spec.get("soft_tau"))
    return _calibrated(policy, spec["calibrate"]) if "calibrate" in spec else policy


def _calibrated(policy: Policy, calibrate: Any) -> Policy:
    """Return a preset that is to be calibrated, with its bounds at their ceilings."""
    if policy.calibrate is not None:
        # Its criteria are ceilings already; an own calibration starts from the same published bounds.
        limits = zip(policy.criteria, policy.calibrate.floor, strict=True)
        policy = replace(
            policy,
            criteria=tuple(replace(criterion, lower=lower, upper=upper) for criterion, (lower, upper) in limits),
            calibrate=None,
        )
    criteria, calibration = parse_calibration(calibrate, policy.criteria)
    return replace(policy, criteria=criteria, calibrate=calibration)


def _canonical_json(spec: dict[str, Any]) -> str:
    return json.dumps(spec, sort_keys=True, separators=(",", ":"), allow_nan=False)


def _parse_list(key: str, specs: Any, *, parse: Callable[[Mapping[str, Any]], Rule], limit: int) -> tuple[Rule, ...]:
    if not isinstance(specs, list | tuple):
        raise PolicyError(f"{key} must be a list, got {type(specs).__name__}")
    if len(specs) > limit:
        raise PolicyError(f"a policy has at most {limit} {key}, got {len(specs)}")
    return tuple(_parse_at(f"{key}[{index}]", spec, parse=parse) for index, spec in enumerate(specs))


def _parse_at(place: str, spec: Mapping[str, Any], *, parse: Callable[[Mapping[str, Any]], Rule]) -> Rule:
    try:
        return parse(spec)
    except PolicyError as error:
        raise PolicyError(f"{place}: {error}") from None


def _needs(criterion: Criterion) -> tuple[str, ...]:
    """Return the required arguments; criteria that apply only where logits are given do not require logits."""
    pair = _log_probs_of(criterion.pair)
    if criterion.where in ("kl_exact", "kl_lower_bound"):
        return pair
    if criterion.by_advantage:
        return (*pair, *criterion.measured.needs, "advantages")
    return (*pair, *criterion.measured.needs)


def _log_probs_of(choice: PairChoice) -> tuple[str, ...]:
    return RATIOS[choice] if choice in PAIRS else ()
