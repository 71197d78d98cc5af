"""Presets: published acceptance rules with their default bounds and the keywords that change them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from trmon_client.core.policies.criteria import Criterion, PairChoice, TokenRule, checked_bound
from trmon_client.core.policies.sequence_statistics import PolicyError

_SEQUENCE_IS = {"rollout_is": "sequence", "rollout_is_threshold": 2.0}
_TOKEN_IS = {"rollout_is": "token", "rollout_is_threshold": 2.0}
_ICEPOP = {"rollout_is": "token", "rollout_is_threshold": "0.5_5.0"}
_SEQUENCE_RS = {"rollout_rs": "seq_sum_k1", "rollout_rs_threshold": "0.5_2.0"}
_GEO_RS = {"rollout_rs": "seq_mean_k1", "rollout_rs_threshold": "0.999_1.001"}
_K3_RS = {"rollout_rs": "seq_mean_k3", "rollout_rs_threshold": 0.01}
_PPO = {"bypass_mode": True, "loss_type": "ppo_clip"}
_REINFORCE = {"bypass_mode": True, "loss_type": "reinforce"}

VERL_PRESETS: dict[str, Mapping[str, Any]] = {
    "decoupled_token_is": _TOKEN_IS,
    "decoupled_seq_is": _SEQUENCE_IS,
    "decoupled_token_icepop": _ICEPOP,
    "decoupled_seq_is_rs": {**_SEQUENCE_IS, **_SEQUENCE_RS},
    "decoupled_geo_rs": _GEO_RS,
    "decoupled_geo_rs_seq_tis": {**_SEQUENCE_IS, **_GEO_RS},
    "decoupled_geo_rs_token_tis": {**_TOKEN_IS, **_GEO_RS},
    "decoupled_k3_rs": _K3_RS,
    "decoupled_k3_rs_seq_tis": {**_SEQUENCE_IS, **_K3_RS},
    "decoupled_k3_rs_token_tis": {**_TOKEN_IS, **_K3_RS},
    "bypass_ppo_clip": _PPO,
    "bypass_ppo_clip_geo_rs": {**_PPO, **_GEO_RS},
    "bypass_ppo_clip_k3_rs": {**_PPO, **_K3_RS},
    "bypass_pg_is": {**_REINFORCE, **_SEQUENCE_IS},
    "bypass_pg_token_icepop": {**_REINFORCE, **_ICEPOP},
    "bypass_pg_geo_rs": {**_REINFORCE, **_GEO_RS},
    "bypass_pg_geo_rs_seq_tis": {**_REINFORCE, **_SEQUENCE_IS, **_GEO_RS},
    "bypass_pg_geo_rs_token_tis": {**_REINFORCE, **_TOKEN_IS, **_GEO_RS},
    "disabled": {},
}
"""The options of each preset; what is left out has the value of verl's YAML. Source: verl 0.9.1."""


CERTIFICATE_MARGIN = 1e-4
"""The margin in nats by which a lower bound of KL must exceed delta to prove a violation; it covers rounding."""

MAX_DELTA = 0.05
AVG_DELTA = 0.001
MAX_ABS_D = 0.5
GSPO_LOWER, GSPO_UPPER = 1 - 3e-4, 1 + 4e-4
"""The clip range of exp(S/T). Source: [GSPO] (arXiv 2507.18071), section 5.1."""
MAX_LAG = 4.0
"""A default of trmon: no source gives one for a mask."""
DPPO_TV_DELTA, DPPO_KL_DELTA = 0.15, 0.05
"""DPPO's thresholds in verl's example script of the paper. Source: [DPPO] (arXiv 2602.04879)."""
M2PO_LIMIT = 0.04
"""The limit on the second moment. Source: [M2PO] (arXiv 2510.01161)."""
CISPO_UPPER = 1.2
"""1 + eps_high of verl's example; the paper names no value. Source: [CISPO] (arXiv 2506.13585)."""


@dataclass(frozen=True, slots=True)
class PresetBounds:
    """The bounds given by the caller; None keeps the default of the preset."""

    delta: float | None = None
    lower: float | None = None
    upper: float | None = None

    def given(self) -> dict[str, float]:
        """Return the given bounds by name."""
        named = {"delta": self.delta, "lower": self.lower, "upper": self.upper}
        return {name: bound for name, bound in named.items() if bound is not None}


@dataclass(frozen=True, slots=True)
class Preset:
    """A preset: its keywords, the function that builds its criteria, and its source.

    `weights` names the token rule that weights accepted sequences; an `is_calibrated` one has its bounds at their
    ceilings until the service calibrates them.
    """

    takes: tuple[str, ...]
    build: Callable[[PresetBounds], tuple[Criterion, ...]]
    source: str
    weights: str | None = None
    is_calibrated: bool = False


def preset_criteria(name: str, bounds: PresetBounds) -> tuple[Criterion, ...]:
    """Return the criteria of a preset with the caller's bounds.

    Errors: PolicyError for an unknown preset, or a keyword that the preset does not take.
    """
    if name not in PRESETS:
        known = ", ".join((*PRESETS, *TOKEN_POLICIES, *VERL_PRESETS))
        raise PolicyError(f"unknown preset {name!r:.64}; the presets are {known}")
    preset = PRESETS[name]
    _check_keywords(name, bounds, takes=preset.takes)
    return preset.build(bounds)


def preset_token_rule(name: str, bounds: PresetBounds) -> TokenRule:
    """Return the rule of a token policy with the caller's bounds; a single k1 bound u means [1/u, u].

    Errors: PolicyError for a keyword that the policy does not take.
    """
    rule = TOKEN_POLICIES[name]
    _check_keywords(name, bounds, takes=(*rule.kind.takes, "delta") if rule.kind.is_signed else rule.kind.takes)
    lower, upper = bounds.lower, bounds.upper
    if name == "token_k1":
        lower, upper = two_sided_ratio(bounds, of=name)
    if bounds.delta is not None:
        delta = _delta(bounds, bounds.delta, of=name)
        lower, upper = -delta if lower is None else lower, delta if upper is None else upper
    return replace(rule, lower=rule.lower if lower is None else lower, upper=rule.upper if upper is None else upper)


def sequence_weight_rule(rule: str, criteria: tuple[Criterion, ...]) -> TokenRule:
    """Return the rule that weights the sequences which the criteria accept.

    That of [3P] reads the mismatch pair and has the bounds of the criterion; that of [GSPO] reads the same pair as the
    criteria and has none.
    """
    if rule == "seq_mis":
        return TokenRule(rule, "mismatch", lower=criteria[0].lower, upper=criteria[0].upper)
    return TokenRule(rule, criteria[0].pair)


def two_sided_ratio(bounds: PresetBounds, *, of: str) -> tuple[float | None, float | None]:
    """Return the bounds of a ratio; a single bound u means [1/u, u]. Errors: PolicyError unless both are above 0."""
    lower = checked_bound("lower", bounds.lower, of=of, is_ratio=True)
    upper = checked_bound("upper", bounds.upper, of=of, is_ratio=True)
    if lower is None and upper is not None:
        return 1 / upper, upper
    if upper is None and lower is not None:
        return lower, 1 / lower
    return lower, upper


def _check_keywords(name: str, bounds: PresetBounds, *, takes: tuple[str, ...]) -> None:
    for keyword in bounds.given():
        if keyword not in takes:
            raise PolicyError(f"{name} takes {' and '.join(takes) or 'no bounds'}, not {keyword}")


def _delta(bounds: PresetBounds, default: float, *, of: str) -> float:
    delta = checked_bound("delta", bounds.delta, of=of, is_ratio=False)
    return default if delta is None else delta


def _trm_max(bounds: PresetBounds) -> tuple[Criterion, ...]:
    delta = _delta(bounds, MAX_DELTA, of="max_kl")
    certified = delta + CERTIFICATE_MARGIN
    return (
        Criterion("max_kl", upper=delta, where="kl_exact"),
        Criterion("max_kl", upper=certified, where="kl_lower_bound"),
        Criterion("max_binary_kl", upper=certified, where="kl_not_exact"),
        Criterion("max_abs_d", upper=MAX_ABS_D, where="kl_not_exact"),
    )


def _trm_avg(bounds: PresetBounds) -> tuple[Criterion, ...]:
    delta = _delta(bounds, AVG_DELTA, of="mean_kl")
    return (
        Criterion("mean_kl", upper=delta, where="kl_exact"),
        Criterion("mean_k3", upper=delta, where="kl_not_exact"),
    )


def _trm(bounds: PresetBounds) -> tuple[Criterion, ...]:
    """Return both presets; `delta` changes the bound on the largest KL and leaves the bound on the mean."""
    return (*_trm_max(bounds), *_trm_avg(PresetBounds()))


def _single_criterion(criterion: Criterion, source: str) -> Preset:
    def build(bounds: PresetBounds) -> tuple[Criterion, ...]:
        lower = criterion.lower if bounds.lower is None else bounds.lower
        upper = criterion.upper if bounds.upper is None else bounds.upper
        return (replace(criterion, lower=lower, upper=upper),)

    return Preset(("lower", "upper"), build, source)


def _symmetric_ratio(criterion: Criterion, source: str) -> Preset:
    """Return the preset of one ratio; a single bound u means [1/u, u]."""

    def build(bounds: PresetBounds) -> tuple[Criterion, ...]:
        if not bounds.given():
            return (criterion,)
        lower, upper = two_sided_ratio(bounds, of=criterion.statistic)
        return (replace(criterion, lower=lower, upper=upper),)

    return Preset(("lower", "upper"), build, source)


def _gspo(bounds: PresetBounds) -> tuple[Criterion, ...]:
    """Return PPO's clip of exp(S/T) as criteria: the clipped branch of the min has no gradient."""
    lower = GSPO_LOWER if bounds.lower is None else bounds.lower
    upper = GSPO_UPPER if bounds.upper is None else bounds.upper
    return (
        Criterion("geo_ratio", _PPO_RATIO, upper=upper, where="advantage_positive"),
        Criterion("geo_ratio", _PPO_RATIO, lower=lower, where="advantage_negative"),
    )


_MISMATCH_OR_PRIMARY: PairChoice = "mismatch_or_primary"
_PPO_RATIO: PairChoice = "staleness_or_primary"
_TWO_SIDED_MIS = _single_criterion(Criterion("seq_ratio", _MISMATCH_OR_PRIMARY, 0.5, 2.0), "[3P], two-sided as in verl")
_SEQ_MIS_MASK = _single_criterion(Criterion("seq_ratio", _MISMATCH_OR_PRIMARY, upper=2.0), "[3P]")

PRESETS: dict[str, Preset] = {
    "trm_max": Preset(("delta",), _trm_max, "[TRM]"),
    "trm_avg": Preset(("delta",), _trm_avg, "[TRM]"),
    "trm": Preset(("delta",), _trm, "[TRM]"),
    "trm_auto": Preset((), _trm, "[TRM], calibrated", is_calibrated=True),
    "geo_mask": _single_criterion(Criterion("geo_ratio", _MISMATCH_OR_PRIMARY, 0.99, 1.01), "[GEO]"),
    "seq_mis": replace(_SEQ_MIS_MASK, weights="seq_mis"),
    "seq_mis_mask": _SEQ_MIS_MASK,
    "seq_mis_two_sided": replace(_TWO_SIDED_MIS, weights="seq_mis"),
    "token_veto": _single_criterion(Criterion("min_ratio", _MISMATCH_OR_PRIMARY, 1e-4), "[3P]"),
    "intellect3": _single_criterion(Criterion("min_ratio", _MISMATCH_OR_PRIMARY, 1e-5), "[I3]"),
    "opsm": _single_criterion(Criterion("mean_k1", upper=0.1, where="advantage_negative"), "[OPSM]"),
    "gspo": Preset(("lower", "upper"), _gspo, "[GSPO]", weights="gspo"),
    "close_versions": _single_criterion(
        Criterion("version_lag", upper=MAX_LAG), "the staleness limit of AReaL, as a mask"
    ),
    "seq_mean_k1": _symmetric_ratio(Criterion("geo_ratio", _MISMATCH_OR_PRIMARY, 0.999, 1.001), "verl"),
    "seq_sum_k1": _symmetric_ratio(Criterion("seq_ratio", _MISMATCH_OR_PRIMARY, 0.5, 2.0), "verl"),
    "seq_mean_k2": _single_criterion(Criterion("mean_k2", _MISMATCH_OR_PRIMARY, upper=0.01), "verl"),
    "seq_mean_k3": _single_criterion(Criterion("mean_k3", _MISMATCH_OR_PRIMARY, upper=0.01), "verl"),
    "seq_sum_k2": _single_criterion(Criterion("sum_k2", _MISMATCH_OR_PRIMARY, upper=2.5), "verl"),
    "seq_sum_k3": _single_criterion(Criterion("sum_k3", _MISMATCH_OR_PRIMARY, upper=2.5), "verl"),
    "seq_max_k2": _single_criterion(Criterion("max_k2", _MISMATCH_OR_PRIMARY, upper=2.5), "verl"),
    "seq_max_k3": _single_criterion(Criterion("max_k3", _MISMATCH_OR_PRIMARY, upper=2.5), "verl"),
}
"""The sequence presets by name. Source: formulas, section 6."""

TOKEN_POLICIES: dict[str, TokenRule] = {
    rule.rule: rule
    for rule in (
        TokenRule("token_k1", lower=0.999, upper=1.001),
        TokenRule("token_k2", upper=0.01),
        TokenRule("token_k3", upper=0.01),
        TokenRule("icepop", lower=0.5, upper=5.0),
        TokenRule("tis", upper=2.0),
        TokenRule("seq_tis", upper=2.0),
        TokenRule("dppo", "primary", lower=-DPPO_TV_DELTA, upper=DPPO_TV_DELTA),
        TokenRule("dppo_kl", "primary", lower=-DPPO_KL_DELTA, upper=DPPO_KL_DELTA),
        TokenRule("m2po", upper=M2PO_LIMIT),
        TokenRule("cispo", _PPO_RATIO, upper=CISPO_UPPER),
    )
}
"""The token policies by name: each is one rule with its default bounds. Source: formulas, section 6."""
