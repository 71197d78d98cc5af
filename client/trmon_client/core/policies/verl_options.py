"""Translates verl's rollout correction options into criteria and token rules.

`rollout_rs` lists rejection modes, `rollout_rs_threshold` their bounds ("0.5_2.0", or "2.0" for [1/2, 2] of k1);
`rollout_is` weights tokens by "token" or "sequence" ratios, truncated at `rollout_is_threshold`, or by IcePop if the
threshold is a range. Bounds of k1 apply to rho itself, as verl documents them; verl at 1dda039 compares the inverse.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

from trmon_client.core.policies.criterion import Criterion
from trmon_client.core.policies.presets import TOKEN_POLICIES, PresetBounds, preset_criteria, preset_token_rule
from trmon_client.core.policies.sequence_statistics import PolicyError
from trmon_client.core.policies.token_rule import TokenRule

KEYS = ("rollout_rs", "rollout_rs_threshold", "rollout_is", "rollout_is_threshold")
REJECTION_MODES = (
    *("token_k1", "token_k2", "token_k3"),
    *("seq_sum_k1", "seq_sum_k2", "seq_sum_k3", "seq_mean_k1", "seq_mean_k2", "seq_mean_k3"),
    *("seq_max_k2", "seq_max_k3"),
)
"""verl's eleven rejection modes; each is the name of a preset. Source: formulas, section 6."""
DEFAULT_IS_THRESHOLD = 2.0

Rules = tuple[str, tuple[Criterion, ...], tuple[TokenRule, ...]]
"""A policy's name, criteria and token rules."""


def rules_from_verl(options: Mapping[str, Any]) -> Rules:
    """Return the rules of verl's options; an option that is None counts as absent.

    Errors: PolicyError naming the option, the expected value and the given one.
    Source: formulas, section 6.
    """
    unknown = [str(key)[:64] for key in options if key not in KEYS]
    if unknown:
        raise PolicyError(f"unknown key {', '.join(unknown[:4])}; verl's options are {', '.join(KEYS)}")
    parts = [*_all_rejection_rules(options.get("rollout_rs"), options.get("rollout_rs_threshold"))]
    if options.get("rollout_is") is not None:
        threshold = options.get("rollout_is_threshold")
        parts.append(_weight_rules(options["rollout_is"], DEFAULT_IS_THRESHOLD if threshold is None else threshold))
    names, criteria, token_rules = zip(*parts, strict=True) if parts else ((), (), ())
    chain = itertools.chain.from_iterable
    return f"verl({', '.join(names)})"[:128], tuple(chain(criteria)), tuple(chain(token_rules))


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
    bounds = _bounds("rollout_is_threshold", str(threshold))
    if not isinstance(level, str) or level not in ("token", "sequence"):
        raise PolicyError(f"rollout_is must be token or sequence, got {level!r:.64}")
    rule = "seq_tis" if level == "sequence" else "tis" if bounds.lower is None else "icepop"
    return f"{level} is={threshold}", (), (preset_token_rule(rule, bounds),)


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
