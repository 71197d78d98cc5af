"""Batches whose signals have given values: real columns, reports and decisions with one fault."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Any

import msgspec
import numpy as np

from tests.domain.trainer import POLICY
from trmon_client.core import wire
from trmon_client.core.column_schema import COLUMNS, HISTOGRAM_EDGES, N_BINS, PAIR_STEMS, PAIRS, KlIs
from trmon_client.core.columns import Columns
from trmon_client.core.policies.decision import decide
from trmon_client.core.policies.policy import Policy, preset

Numbers = Mapping[str, float]
"""Signals and trainer scalars by name."""

N = 20
LENGTH = 50
TOKENS = N * LENGTH
VERSION = 10
HEALTHY_SCALARS = {"grad_norm": 1.0, "grad_variance": 1.0, "router_flip_rate": 0.001, "lr": 1e-6}
OPTIONAL_SCALARS = ("entropy", "loss")
UNLIKELY = -1000.0
"""A log-weight with which a sequence has no weight."""


@dataclass
class Batch:
    """One step of two engines that agree exactly, to which a fault is then added."""

    lengths: np.ndarray[Any, Any]
    columns: dict[str, Any] = field(default_factory=dict)
    kl_is: KlIs = "exact"
    trainer_version: int = VERSION
    old_version: int = VERSION
    policies: tuple[Policy | None, ...] = (POLICY,)
    rejected: tuple[int, ...] = ()
    flipped: int = 0
    fields: dict[str, Any] = field(default_factory=dict)
    step_seconds: float = 10.0
    drawn_d: float = 0.0
    """The d of all tokens in the histogram of the mismatch pair."""

    def __post_init__(self) -> None:
        groups = np.arange(N) // 2
        self.columns = {
            **{f"{pair}_{stem}": np.zeros(N) for pair in PAIRS for stem in PAIR_STEMS},
            **{name: np.zeros(N) for name in ("n_invalid", "n_saturated", "n_clamped", "argmax_abs_d")},
            "n_tokens": self.lengths,
            "n_clipped": self.lengths // 10,
            "advantage": np.where(np.arange(N) % 2, 1.0, -1.0),
            "reward": np.where(_is_rewarded(), 1.0, 0.0),
            "group_id": groups,
            "version_min": np.full(N, VERSION),
            "version_max": np.full(N, VERSION),
            "max_kl": np.full(N, 1e-12),
            "sum_kl": np.full(N, 1e-12),
        }
        for pair in PAIRS:
            for stem in ("sum_p", "sum_q", "sum_pp", "sum_qq", "sum_pq"):
                self.columns[f"{pair}_{stem}"] = 0.5 * self.lengths
            for stem in ("sum_trunc_ratio", "sum_sq_trunc_ratio"):
                self.columns[f"{pair}_{stem}"] = 1.0 * self.lengths

    def per_token(self, name: str, value: float) -> None:
        """Set a sum so that its mean per token is a value."""
        self.columns[name] = value * self.lengths

    def count(self, name: str, fraction: float) -> None:
        """Set a count to a fraction of all tokens; the remainder of the division is in the first sequence."""
        total = round(fraction * TOKENS)
        self.columns[name] = np.full(N, total // N)
        self.columns[name][0] += total % N

    def reports(self, step: int, *, mode: str) -> list[wire.Report]:
        """Return the reports of a step, one rank per policy."""
        at = {"step": step, "mode": mode, "sent_at": 1000.0 + self.step_seconds * step}
        return [msgspec.structs.replace(report, **at) for report in self._reports]

    @cached_property
    def _reports(self) -> list[wire.Report]:
        content = Columns(
            by_name={name: np.asarray(value, COLUMNS[name].dtype) for name, value in self.columns.items()},
            kl_is=self.kl_is,
            trainer_version=self.trainer_version,
            old_version=self.old_version,
            histograms={pair: _histogram(self.drawn_d if pair == "mismatch" else 0.0) for pair in PAIRS},
        )
        return [self._report(content, rank, policy) for rank, policy in enumerate(self.policies)]

    def _report(self, content: Columns, rank: int, policy: Policy | None) -> wire.Report:
        accepted = np.ones(N, bool) if policy is None else np.array(decide(content, policy).accepted)
        accepted[list(self.rejected)] = False
        accepted[: self.flipped] ^= True
        given: dict[str, Any] = {
            "attempt": "a",
            "launch": "launch-1",
            "step": 0,
            "rank": rank,
            "world_size": len(self.policies),
            "parcel": wire.pack_columns(content),
            "kl_is": content.kl_is,
            "trainer_version": content.trainer_version,
            "old_version": content.old_version,
            "policy": policy and policy.hash,
            "accepted": wire.pack_bits(accepted),
        }
        return wire.Report(**{**given, **self.fields})


def _histogram(d: float) -> np.ndarray[Any, Any]:
    counts = np.zeros(N_BINS, np.int64)
    counts[np.searchsorted(HISTOGRAM_EDGES, d, side="right")] = TOKENS
    return counts


@cache
def batch_of(numbers: tuple[tuple[str, float], ...]) -> Batch:
    """Return a batch with these numbers; all other numbers that rules read are healthy."""
    given = dict(numbers)
    batch = Batch(_lengths(given))
    scalars = {name: given.get(name, value) for name, value in HEALTHY_SCALARS.items()}
    scalars |= {name: given[name] for name in OPTIONAL_SCALARS if name in given}
    batch.fields["scalars"] = scalars
    for name in given.keys() - scalars.keys():
        MAKE[name](batch, given)
    return batch


def _lengths(numbers: Numbers) -> np.ndarray[Any, Any]:
    if "mismatch_kl_k1" in numbers:
        # One long sequence changes kl_k1, a mean over tokens, but hardly ppl_ratio, a mean over sequences.
        return np.array([TOKENS - N + 1, *[1] * (N - 1)])
    if "mask_rate_long" in numbers:
        return np.repeat([LENGTH // 2, LENGTH, LENGTH * 3 // 2], [N // 4, N // 2, N // 4])
    usual = np.full(N, LENGTH * numbers.get("response_length_growth", 1.0))
    if "reward_length_corr" in numbers:
        usual *= np.where(_is_rewarded(), 1.2, 0.8)
    return usual.round()


def _is_rewarded() -> np.ndarray[Any, Any]:
    rows = np.arange(N)
    return (rows % 2 == 1) & (rows // 2 >= 2)


def _k3_excess(batch: Batch, numbers: Numbers) -> None:
    """Set all d to 2^-10, so that |k1| is 2^-10 without noise."""
    d = 2.0**-10
    batch.drawn_d = 1.0
    batch.per_token("mismatch_sum_d", -d)
    batch.per_token("mismatch_sum_sq_d", d * d)
    batch.per_token("mismatch_sum_k3", 10 * d * numbers["mismatch_k3_excess"])


def _weights(batch: Batch, numbers: Numbers) -> None:
    """Set the mean and the square of rho - 1 for given chi2, effective sample size, or both."""
    ess, chi2 = numbers.get("mismatch_ess_token"), numbers.get("mismatch_chi2_token")
    if ess is None:
        assert chi2 is not None
        deviation, square = chi2 / 4, chi2 / 2
    elif chi2 is None:
        deviation, square = -0.5, 0.25 * (1 / ess - 1) + 0.25
    else:
        deviation = math.sqrt(ess * (1 + chi2)) - 1
        square = chi2 - 2 * deviation
    batch.per_token("mismatch_sum_ratio_dev", deviation)
    batch.per_token("mismatch_sum_sq_ratio_dev", square)


def _ratio_shift(batch: Batch, numbers: Numbers) -> None:
    deviation = numbers["mismatch_ratio_mean"] - 1
    variance = TOKENS * (deviation / numbers["mismatch_ratio_shift"]) ** 2
    batch.per_token("mismatch_sum_ratio_dev", deviation)
    batch.per_token("mismatch_sum_sq_ratio_dev", variance + deviation**2)


def _pearson(batch: Batch, numbers: Numbers) -> None:
    """Set the product of two probabilities with mean 1/2 and variance 1/4."""
    batch.per_token("mismatch_sum_pq", 0.25 + 0.25 * numbers["mismatch_prob_pearson"])


def _truncated(batch: Batch, numbers: Numbers) -> None:
    for stem in ("sum_trunc_ratio", "sum_sq_trunc_ratio"):
        batch.per_token(f"mismatch_{stem}", numbers["mismatch_ess_truncated"])


def _kl_k1(batch: Batch, numbers: Numbers) -> None:
    batch.columns["mismatch_sum_d"] = np.array([-TOKENS * numbers["mismatch_kl_k1"], *[0.0] * (N - 1)])


def _ess_seq(share: float) -> Callable[[Batch], None]:
    def make(batch: Batch) -> None:
        batch.columns["mismatch_sum_d"] = np.where(np.arange(N) < round(share * N), 0.0, UNLIKELY)

    return make


def _engine_lag(batch: Batch, numbers: Numbers) -> None:
    lag = numbers["engine_lag"]
    oldest = np.full(N, -1 if math.isnan(lag) else VERSION - lag)
    batch.columns |= {"version_min": oldest, "version_max": oldest}


def _invalid(batch: Batch, numbers: Numbers) -> None:
    if math.isnan(numbers["invalid_fraction"]):
        batch.columns |= {name: np.zeros(N) for name in batch.columns if name.startswith(("n_", "sum_"))}
    else:
        share = numbers["invalid_fraction"]
        batch.count("n_invalid", share / (1 - share))


def _equal_groups(batch: Batch, numbers: Numbers) -> None:
    equal = round(numbers["zero_variance_groups"] * N / 2)
    rows = np.arange(N)
    batch.columns["reward"] = np.where((rows % 2 == 1) & (rows // 2 >= equal), 1.0, 0.0)


def _temperature(batch: Batch, numbers: Numbers) -> None:
    """Set log-probs of which one is the other at another temperature: log p = t log q, with var(log q) = 1."""
    ratio = numbers["temperature_near"]
    for name, factor in (("rollout", 1.0), ("old", ratio)):
        batch.per_token(f"sum_logp_{name}", -2.0 * factor)
        batch.per_token(f"sum_sq_logp_{name}", 5.0 * factor * factor)
    batch.per_token("mismatch_sum_d", -2.0 * (ratio - 1))
    batch.per_token("mismatch_sum_sq_d", 5.0 * (ratio - 1) ** 2)


def _rewards(batch: Batch, numbers: Numbers) -> None:
    batch.columns["reward"] = np.where(np.arange(N) < round(numbers["reward_mean"] * N), 1.0, 0.0)


def _equal_rewards(batch: Batch, numbers: Numbers) -> None:
    assert numbers["reward_std"] == 0
    batch.columns["reward"] = np.ones(N)
    del batch.columns["group_id"]


def _rejected(batch: Batch, numbers: Numbers) -> None:
    """Set the accepted bits of a trainer without a policy, which the replay does not change."""
    batch.policies = (None,)
    if "mask_rate_long" not in numbers:
        batch.rejected = tuple(range(round(numbers["mask_rate"] * N)))
        return
    short, long = (round(numbers[f"mask_rate_{which}"] * N / 4) for which in ("short", "long"))
    batch.rejected = (*range(short), *range(N - long, N))


def _shadow_rejects(batch: Batch, numbers: Numbers) -> None:
    """Set mean d of 0.02, which geo_mask rejects: its limit is 0.01."""
    batch.policies = (None,)
    rows = np.arange(N) < round(numbers["mask_rate:geo_mask"] * N)
    batch.columns["mismatch_sum_d"] = np.where(rows, 0.02 * LENGTH, 0.0)


def _bound(batch: Batch, numbers: Numbers) -> None:
    vacuous = numbers["bound_vacuous"]
    if math.isnan(vacuous):
        batch.kl_is = "sampled"
        del batch.columns["max_kl"], batch.columns["sum_kl"]
    elif vacuous:
        batch.columns |= {"max_kl": np.full(N, 1.0), "sum_kl": np.full(N, 10.0)}


def _versions_of_policies(batch: Batch, numbers: Numbers) -> None:
    assert numbers["policy_versions"] == 2
    batch.policies = (POLICY, preset("geo_mask"))


def _per_token(signal: str, column: str) -> Callable[[Batch, Numbers], None]:
    return lambda batch, numbers: batch.per_token(column, numbers[signal])


def _count(signal: str, column: str) -> Callable[[Batch, Numbers], None]:
    return lambda batch, numbers: batch.count(column, numbers[signal])


def _set(name: str, signal: str, *, plus: float = 0.0) -> Callable[[Batch, Numbers], None]:
    return lambda batch, numbers: setattr(batch, name, int(numbers[signal] + plus))


def _nothing(batch: Batch, numbers: Numbers) -> None:
    """Do nothing: the value follows from the other given numbers."""


MAKE: dict[str, Callable[[Batch, Numbers], None]] = {
    "mismatch_k3_excess": _k3_excess,
    "mismatch_kl_k1": _kl_k1,
    "mismatch_kl_k3": _per_token("mismatch_kl_k3", "mismatch_sum_k3"),
    "staleness_kl_k3": _per_token("staleness_kl_k3", "staleness_sum_k3"),
    "mismatch_ess_token": _weights,
    "mismatch_chi2_token": _weights,
    "mismatch_ratio_shift": _ratio_shift,
    "mismatch_ratio_mean": _nothing,
    "mismatch_prob_pearson": _pearson,
    "mismatch_prob_diff_max": lambda batch, numbers: batch.columns.update(
        mismatch_max_prob_diff=np.full(N, numbers["mismatch_prob_diff_max"])
    ),
    "mismatch_ppl_ratio": lambda batch, numbers: batch.per_token(
        "mismatch_sum_d", -math.log(numbers["mismatch_ppl_ratio"])
    ),
    "mismatch_ess_truncated": _truncated,
    "mismatch_ess_seq": lambda batch, numbers: _ess_seq(numbers["mismatch_ess_seq"])(batch),
    "ess_seq_relative": lambda batch, numbers: _ess_seq(numbers["ess_seq_relative"])(batch),
    "engine_lag": _engine_lag,
    "staleness_lag": _set("trainer_version", "staleness_lag", plus=VERSION),
    "invalid_fraction": _invalid,
    "saturated_fraction": _count("saturated_fraction", "n_saturated"),
    "clamped_fraction": _count("clamped_fraction", "n_clamped"),
    "clip_fraction": _count("clip_fraction", "n_clipped"),
    "response_length_growth": _nothing,
    "reward_length_corr": _nothing,
    "zero_variance_groups": _equal_groups,
    "reward_std": _equal_rewards,
    "reward_mean": _rewards,
    "length_limit_share": lambda batch, numbers: batch.columns.update(
        truncated=np.arange(N) < round(numbers["length_limit_share"] * N)
    ),
    "version_span_max": lambda batch, numbers: batch.columns.update(
        version_min=np.full(N, VERSION - numbers["version_span_max"])
    ),
    "mu_zero_saturated_share": lambda batch, numbers: batch.count(
        "n_mu_zero", numbers["saturated_fraction"] / numbers["mu_zero_saturated_share"]
    ),
    "temperature_near": _temperature,
    "mask_rate": _rejected,
    "mask_rate_long": _nothing,
    "mask_rate_short": _nothing,
    "mask_rate:geo_mask": _shadow_rejects,
    "bound_vacuous": _bound,
    "missing_ranks": lambda batch, numbers: batch.fields.update(world_size=1 + int(numbers["missing_ranks"])),
    "incomplete": lambda batch, numbers: batch.fields.update(chunk=int(numbers["incomplete"])),
    "policy_versions": _versions_of_policies,
    "decision_mismatches": _set("flipped", "decision_mismatches"),
    "client_spooled_bytes": lambda batch, numbers: batch.fields.update(
        losses=wire.Losses(spooled_bytes=int(numbers["client_spooled_bytes"]))
    ),
    "step_seconds": lambda batch, numbers: setattr(batch, "step_seconds", numbers["step_seconds"]),
}
"""The function that sets each number."""
