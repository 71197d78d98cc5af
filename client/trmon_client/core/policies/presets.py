"""Presets: published acceptance rules with their default bounds and the keywords that change them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

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


def _single_criterion(criterion: Criterion, source: str, *, is_symmetric: bool = False) -> Preset:
    """Return the preset of one criterion. Args: is_symmetric: of a ratio, whose single bound u means [1/u, u]."""

    def build(bounds: PresetBounds) -> tuple[Criterion, ...]:
        lower = criterion.lower if bounds.lower is None else bounds.lower
        upper = criterion.upper if bounds.upper is None else bounds.upper
        if is_symmetric and bounds.given():
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
    "seq_mean_k1": _single_criterion(
        Criterion("geo_ratio", _MISMATCH_OR_PRIMARY, 0.999, 1.001), "verl", is_symmetric=True
    ),
    "seq_sum_k1": _single_criterion(Criterion("seq_ratio", _MISMATCH_OR_PRIMARY, 0.5, 2.0), "verl", is_symmetric=True),
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


KEYS = (
    *("rollout_is", "rollout_is_threshold", "rollout_is_batch_normalize"),
    *("rollout_rs", "rollout_rs_threshold", "bypass_mode", "loss_type"),
)
"""The fields of verl 0.9.1's `RolloutCorrectionConfig`."""
CLASS_KEY = "_target_"
"""The key under which a configuration file names the class; it decides nothing."""
LOSS_TYPES = ("ppo_clip", "reinforce")
REJECTION_MODES = (
    *("token_k1", "token_k2", "token_k3"),
    *("seq_sum_k1", "seq_sum_k2", "seq_sum_k3", "seq_mean_k1", "seq_mean_k2", "seq_mean_k3"),
    *("seq_max_k2", "seq_max_k3"),
)
"""verl's eleven rejection modes; each is the name of a preset. Source: formulas, section 6."""
DEFAULT_IS_THRESHOLD = 2.0

Rule = TypeVar("Rule", Criterion, TokenRule)
Rules = tuple[str, tuple[Criterion, ...], tuple[TokenRule, ...]]
"""A policy's name, criteria and token rules."""


def rules_from_verl(options: Mapping[str, Any]) -> Rules:
    """Return the rules of verl's options; an option that is None or left out has the value of verl's YAML.

    Errors: PolicyError naming the option, the expected value and the given one, and for options that one call of
    `log_batch` cannot apply, with the reason.
    Source: verl 0.9.1; formulas, section 6.
    """
    unknown = [str(key)[:64] for key in options if key not in (*KEYS, CLASS_KEY)]
    if unknown:
        raise PolicyError(f"unknown key {', '.join(unknown[:4])}; verl's options are {', '.join(KEYS)}")
    if _flag(options, "rollout_is_batch_normalize"):
        raise PolicyError(
            "rollout_is_batch_normalize: verl divides the weights by their mean over the batch of all ranks, which one "
            "call does not hold; set it to false, and divide by that mean in the loss"
        )
    loss_type = options.get("loss_type")
    if loss_type is not None and loss_type not in LOSS_TYPES:
        raise PolicyError(f"loss_type must be one of {', '.join(LOSS_TYPES)}, got {loss_type!r:.64}")
    is_bypass = _flag(options, "bypass_mode")
    has_weights = not is_bypass or loss_type == "reinforce"
    parts = [*_all_rejection_rules(options.get("rollout_rs"), options.get("rollout_rs_threshold"))]
    if options.get("rollout_is") is not None:
        weights = _weight_rules(options["rollout_is"], options.get("rollout_is_threshold", DEFAULT_IS_THRESHOLD))
        parts += [weights] if has_weights else []
    names, criteria, token_rules = zip(*parts, strict=True) if parts else ((), (), ())
    chain = itertools.chain.from_iterable
    rules = tuple(chain(criteria)), tuple(chain(token_rules))
    if is_bypass:
        return f"verl({', '.join(('bypass', *names))})"[:128], _of_total(rules[0]), _of_total(rules[1])
    return f"verl({', '.join(names) or 'disabled'})"[:128], *rules


def _flag(options: Mapping[str, Any], key: str) -> bool:
    value = options.get(key)
    if value is not None and not isinstance(value, bool):
        raise PolicyError(f"{key} must be true or false, got {value!r:.64}")
    return bool(value)


def _of_total(rules: tuple[Rule, ...]) -> tuple[Rule, ...]:
    """Return rules that read the primary pair: `total` wherever the current policy's log-probs are given."""
    return tuple(replace(rule, pair="primary") for rule in rules)


def _all_rejection_rules(modes: Any, thresholds: Any) -> list[Rules]:
    if modes is None:
        return []
    names = list(dict.fromkeys(_split_list("rollout_rs", modes)))
    bounds = _split_list("rollout_rs_threshold", thresholds)
    if len(bounds) not in (1, len(names)):
        raise PolicyError(f"rollout_rs_threshold has {len(bounds)} bounds; expected 1 or one for each of {len(names)}")
    return [
        _rejection_rules(mode, bound) for mode, bound in zip(names, bounds * (len(names) // len(bounds)), strict=True)
    ]


def _rejection_rules(mode: str, threshold: str) -> Rules:
    if mode not in REJECTION_MODES:
        raise PolicyError(f"rollout_rs must be of {', '.join(REJECTION_MODES)}, got {mode!r:.64}")
    bounds = _bounds("rollout_rs_threshold", threshold)
    if bounds.lower is not None and not mode.endswith("k1"):
        raise PolicyError(f"rollout_rs_threshold of {mode} must be one upper bound, got {threshold!r:.64}")
    name = f"{mode}={threshold}"
    return (
        (name, (), (preset_token_rule(mode, bounds),))
        if mode in TOKEN_POLICIES
        else (name, preset_criteria(mode, bounds), ())
    )


def _weight_rules(level: Any, threshold: Any) -> Rules:
    if threshold is None:
        raise PolicyError(
            "rollout_is_threshold is None, with which verl computes no weights; give a bound, or set rollout_is to None"
        )
    bounds = _bounds("rollout_is_threshold", str(threshold))
    if not isinstance(level, str) or level not in ("token", "sequence"):
        raise PolicyError(f"rollout_is must be token or sequence, got {level!r:.64}")
    if level == "sequence" and bounds.lower is not None:
        rule = TokenRule("seq_mis", lower=bounds.lower, upper=bounds.upper)
    else:
        name = "seq_tis" if level == "sequence" else "tis" if bounds.lower is None else "icepop"
        rule = preset_token_rule(name, bounds)
    return f"{level} is={threshold}", (), (rule,)


def _split_list(key: str, value: Any) -> list[str]:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise PolicyError(f"{key} must be text or a number, got {type(value).__name__}")
    parts = [part.strip() for part in str(value).split(",") if part.strip()]
    if not parts:
        raise PolicyError(f"{key} must not be empty")
    return parts


def _bounds(key: str, text: str) -> PresetBounds:
    lower, separator, upper = text.partition("_")
    try:
        return PresetBounds(lower=float(lower), upper=float(upper)) if separator else PresetBounds(upper=float(lower))
    except ValueError:
        raise PolicyError(f"{key} must be a bound, or lower_upper such as 0.5_5.0, got {text!r:.64}") from None
