"""Names of metrics of verl 0.9.1 and TRL 1.16, and the trmon signals that are the same number.

In verl's bypass mode, `rollout_corr/*` compares the current weights with those of the rollout; it is read as `mismatch`
too, and its drift then combines the engines and the updates.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from trmon.domain.diagnosis.required_signals import PAIR_SIGNALS, REQUIRED_SIGNALS
from trmon.domain.signals.derived_signals import DERIVED
from trmon_client.core.signals.catalogue import SIGNALS

VERL: Mapping[str, str] = MappingProxyType(
    {
        "rollout_corr/kl": "mismatch_kl_k1",
        "rollout_corr/k3_kl": "mismatch_kl_k3",
        "rollout_corr/chi2_token": "mismatch_chi2_token",
        "rollout_corr/chi2_seq": "mismatch_chi2_seq",
        "rollout_corr/ppl_ratio": "mismatch_ppl_ratio",
        "rollout_corr/log_ppl_diff": "mismatch_log_ppl_diff_mean",
        "rollout_corr/log_ppl_abs_diff": "mismatch_log_ppl_diff_abs_mean",
        "rollout_corr/log_ppl_diff_min": "mismatch_log_ppl_diff_min",
        "rollout_corr/log_ppl_diff_max": "mismatch_log_ppl_diff_max",
        "rollout_corr/training_ppl": "ppl_old",
        "rollout_corr/rollout_ppl": "ppl_rollout",
        "rollout_corr/rollout_rs_seq_masked_fraction": "mask_rate",
        "training/rollout_probs_diff_max": "mismatch_prob_diff_max",
        "training/rollout_probs_diff_mean": "mismatch_prob_diff_mean",
        "training/rollout_probs_diff_std": "mismatch_prob_diff_std",
        "training/rollout_actor_probs_pearson_corr": "mismatch_prob_pearson",
        "training/off_policy/trajectory_staleness_worst/mean": "version_lag_mean",
        "training/off_policy/trajectory_staleness_worst/max": "version_lag_max",
        "actor/ppo_kl": "staleness_kl_k1",
        "actor/pg_clipfrac": "clip_fraction",
        "actor/grad_norm": "grad_norm",
        "actor/lr": "lr",
        "actor/entropy": "entropy",
        "critic/score/mean": "reward_mean",
        "critic/vf_explained_var": "vf_explained_var",
        "response_length/mean": "response_length_mean",
        "response_length/max": "response_length_max",
    }
)
TRL: Mapping[str, str] = MappingProxyType(
    {
        "sampling/sampling_logp_difference/mean": "mismatch_abs_log_ratio_mean",
        "sampling/sampling_logp_difference/max": "mismatch_abs_log_ratio_max",
        "clip_ratio/region_mean": "clip_fraction",
        "frac_reward_zero_std": "zero_variance_groups",
        "reward": "reward_mean",
        "reward_std": "reward_std",
        "completions/mean_length": "response_length_mean",
        "completions/max_length": "response_length_max",
        "learning_rate": "lr",
        "grad_norm": "grad_norm",
        "entropy": "entropy",
    }
)
EXCLUDED_NAMES: Mapping[str, str] = MappingProxyType(
    {
        "rollout_corr/rollout_is_eff_sample_size": "computed from truncated weights, which hide outliers",
        "rollout_corr/rollout_is_mean": "computed from truncated weights",
        "rollout_corr/rollout_is_std": "computed from truncated weights",
        "sampling/importance_sampling_ratio/mean": "computed after clipping",
        "sampling/importance_sampling_ratio/min": "computed after clipping",
        "sampling/importance_sampling_ratio/max": "computed after clipping",
        "kl": "in TRL, distance from the reference model, not off-policy drift",
    }
)
"""Names that look like signals of trmon but are other numbers, with the reason."""
_PAIR_STEMS = {spec.stem for spec in SIGNALS.values() if spec.per_pair}.union(PAIR_SIGNALS)
_TRMON_NAMES = {*SIGNALS, *DERIVED, *REQUIRED_SIGNALS, "entropy", "lr", "vf_explained_var"}

STEPS = ("step", "global_step", "training/global_step")
"""The names of the step in a line of a log."""


@dataclass(frozen=True, slots=True)
class IgnoredName:
    """A name that was ignored, and the reason."""

    name: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Translation:
    """The signals of one log line under trmon's names, its step, and its ignored names."""

    signals: Mapping[str, float]
    step: int
    ignored: tuple[IgnoredName, ...]


def translate(metrics: Mapping[str, object]) -> Translation:
    """Return the signals of a log line under trmon's names.

    Numbers may be null (NaN), "inf" or "-inf", as on the wire. Names without a pair prefix mean the mismatch pair.
    """
    signals: dict[str, float] = {}
    ignored: list[IgnoredName] = []
    step = 0
    for name, given in metrics.items():
        value, known = _number(given), _trmon_name(name)
        if name in STEPS and value is not None and value.is_integer():
            step = int(value)
        elif known is None:
            ignored.append(IgnoredName(name, EXCLUDED_NAMES.get(name, "unknown name")))
        elif value is None:
            ignored.append(IgnoredName(name, "not a number"))
        else:
            signals[known] = value
    return Translation(signals=signals, step=step, ignored=tuple(ignored))


def _trmon_name(name: str) -> str | None:
    mapped = VERL.get(name) or TRL.get(name)
    if mapped is not None:
        return mapped
    if name in _PAIR_STEMS:
        return f"mismatch_{name}"
    return name if name in _TRMON_NAMES else None


def _number(given: object) -> float | None:
    if given is None or (isinstance(given, str) and given in ("inf", "-inf", "nan")):
        return float(given or "nan")
    return float(given) if isinstance(given, int | float) and not isinstance(given, bool) else None
