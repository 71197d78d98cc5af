"""Translates verl's `RolloutCorrectionConfig`, or some of its options, into criteria and token rules.

`rollout_rs` lists rejection modes, `rollout_rs_threshold` their bounds ("0.5_2.0", or "2.0" for [1/2, 2] of k1);
`rollout_is` weights tokens by "token" or "sequence" ratios, truncated at `rollout_is_threshold`, or by IcePop if the
threshold is a range. Bounds of k1 apply to rho itself, as verl documents them; verl 0.9.1 compares the inverse.
`bypass_mode` reads pi/mu, and applies the weights only if `loss_type` is "reinforce": PPO's ratio is pi/mu there.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeVar

from trmon_client.core.policies.criteria import Criterion, TokenRule
from trmon_client.core.policies.presets import TOKEN_POLICIES, PresetBounds, preset_criteria, preset_token_rule
from trmon_client.core.policies.sequence_statistics import PolicyError

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
    _check_normalization(options)
    is_bypass, has_weights = _mode(options)
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


def _check_normalization(options: Mapping[str, Any]) -> None:
    if _flag(options, "rollout_is_batch_normalize"):
        raise PolicyError(
            "rollout_is_batch_normalize: verl divides the weights by their mean over the batch of all ranks, which one "
            "call does not hold; set it to false, and divide by that mean in the loss"
        )


def _mode(options: Mapping[str, Any]) -> tuple[bool, bool]:
    """Return whether pi/mu is read, and whether the importance weights are applied."""
    loss_type = options.get("loss_type")
    if loss_type is not None and loss_type not in LOSS_TYPES:
        raise PolicyError(f"loss_type must be one of {', '.join(LOSS_TYPES)}, got {loss_type!r:.64}")
    is_bypass = _flag(options, "bypass_mode")
    return is_bypass, not is_bypass or loss_type == "reinforce"


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
