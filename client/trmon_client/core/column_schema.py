"""The registry of per-sequence columns: name, dtype and reduction of everything that leaves the trainer."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Literal

from trmon_client.core.arrays import DType

Pair = Literal["mismatch", "staleness", "total"]
PAIRS: tuple[Pair, ...] = ("mismatch", "staleness", "total")
GAPS: tuple[Pair, ...] = ("mismatch", "staleness")
"""The pairs that make up the total one."""
PRIMARY_ORDER: tuple[Pair, ...] = ("total", "mismatch", "staleness")

KlIs = Literal["exact", "lower_bound", "sampled"]
"""How the KL columns were obtained, strongest first; a merged batch takes the weakest value of its parts."""
KL_IS_ORDER: tuple[KlIs, ...] = ("exact", "lower_bound", "sampled")

HISTOGRAM_EDGES: tuple[float, ...] = (
    *(-(10.0 ** (j / 10)) for j in range(15, -61, -1)),
    *(10.0 ** (j / 10) for j in range(-60, 16)),
)
"""Edges of the histogram of d, in nats."""
N_BINS = len(HISTOGRAM_EDGES) + 1
"""Bins of the histogram of d: one between adjacent edges (the middle bin spans zero) and one beyond each end."""


class Reduction(Enum):
    """How a column reduces the valid tokens of a sequence; the value is the entry of an empty sequence."""

    SUM = 0.0
    MIN = float("inf")
    MAX = float("-inf")
    POSITION = -1
    LABEL = float("nan")


@dataclass(frozen=True, slots=True)
class ColumnSpec:
    """One column: its full name, dtype and reduction."""

    name: str
    dtype: DType
    reduction: Reduction

    @property
    def identity(self) -> float:
        """The entry of a sequence without valid tokens."""
        return float(self.reduction.value)


def _spec(name: str, stem: str) -> ColumnSpec:
    if stem.startswith("sum_"):
        return ColumnSpec(name, "f8", Reduction.SUM)
    if stem.startswith("n_"):
        return ColumnSpec(name, "i8", Reduction.SUM)
    if stem.startswith("argmax_"):
        return ColumnSpec(name, "i8", Reduction.POSITION)
    return ColumnSpec(name, "f4", Reduction.MIN if "min_" in stem else Reduction.MAX)


PAIR_STEMS: tuple[str, ...] = (
    *("sum_d", "sum_abs_d", "sum_sq_d", "min_d", "max_d"),
    *("sum_ratio_dev", "sum_sq_ratio_dev", "sum_ratio_deficit", "sum_k3", "max_k3"),
    *("n_band_low", "n_band_high", "n_trunc", "sum_trunc_ratio", "sum_sq_trunc_ratio"),
    *("max_prob_diff", "sum_prob_diff", "sum_sq_prob_diff"),
    *("sum_p", "sum_q", "sum_pp", "sum_qq", "sum_pq"),
    *("sum_binary_kl", "max_binary_kl", "prefix_min_d", "prefix_max_d"),
)
"""Columns of each given pair, named `<pair>_<stem>`."""

CLIP_STEMS: tuple[str, ...] = (
    *("n_clipped", "n_leaked", "n_leaked_high"),
    *("n_clipped_high", "n_dual_clipped", "n_positive_advantage", "n_negative_advantage"),
)
"""Columns that exist if advantages and a pair are given; older clients send the first three only."""

SEQUENCE_STEMS: tuple[str, ...] = (
    *("n_tokens", "n_invalid", "n_saturated", "n_mu_zero", "n_clamped", "argmax_abs_d"),
    *("n_mu_zero_unlikely", "n_unlikely", "n_prob_diff_half", "n_zero_tail", "n_positive", "max_positive"),
    *("sum_logp_rollout", "sum_logp_old", "sum_logp", "sum_abs_is_dev"),
    *("sum_sq_logp_rollout", "sum_sq_logp_old", "sum_sq_logp"),
    *CLIP_STEMS,
)
"""Columns of the sequence; a column is absent if its input is not given."""

REFERENCE_STEMS: tuple[str, ...] = (
    *("n_ref_tokens", "sum_ref_d", "sum_sq_ref_d", "sum_ref_k3", "max_ref_k3"),
    "sum_ref_k3_is",
)
"""Columns that exist if the log-probs of a reference policy are given."""

REPETITION_STEMS: tuple[str, ...] = ("n_four_grams", "n_repeated_four_grams")
"""Columns that exist if the ids of the tokens are given."""

DIVERGENCE_STEMS: tuple[str, ...] = (
    *("max_kl", "sum_kl", "argmax_kl", "max_reverse_kl", "sum_reverse_kl", "max_tv", "sum_tv"),
    *("max_tv_mismatch", "sum_tv_mismatch", "max_tv_staleness", "sum_tv_staleness"),
    *("sum_entropy_rollout", "sum_entropy", "sum_pi_squared", "n_unbounded"),
)
"""Columns that exist if logits or top-k log-probs are given; those of both gaps if the logits of all three are."""

TOKEN_STEMS: tuple[str, ...] = ("n_token_masked", "n_token_truncated", "sum_token_weight", "sum_sq_token_weight")
"""Columns that exist if the policy has token rules: their effect on the valid tokens."""

LABELS: tuple[ColumnSpec, ...] = (
    ColumnSpec("advantage", "f8", Reduction.LABEL),
    ColumnSpec("reward", "f8", Reduction.LABEL),
    ColumnSpec("group_id", "i8", Reduction.POSITION),
    ColumnSpec("version_min", "i8", Reduction.POSITION),
    ColumnSpec("version_max", "i8", Reduction.POSITION),
    ColumnSpec("truncated", "i8", Reduction.POSITION),
    ColumnSpec("finish_reason", "i8", Reduction.POSITION),
)
"""Labels that the trainer gives a sequence; absent if not given."""

_STEMS = SEQUENCE_STEMS + REFERENCE_STEMS + REPETITION_STEMS + DIVERGENCE_STEMS + TOKEN_STEMS

TURN_STEMS: tuple[str, ...] = ("sum_d", "sum_k3", "max_abs_d", "sum_binary_kl")
"""Columns of the turns of each given pair, named `<pair>_<stem>`."""

COLUMNS: dict[str, ColumnSpec] = {
    **{f"{pair}_{stem}": _spec(f"{pair}_{stem}", stem) for pair in PAIRS for stem in PAIR_STEMS},
    **{stem: _spec(stem, stem) for stem in _STEMS},
    **{spec.name: spec for spec in LABELS},
}
"""All columns by name."""

TURN_COLUMNS: dict[str, ColumnSpec] = {
    "n_tokens": COLUMNS["n_tokens"],
    **{f"{pair}_{stem}": _spec(f"{pair}_{stem}", stem) for pair in PAIRS for stem in TURN_STEMS},
}
"""The columns of a turn by name; they exist if the trainer gives the turns of its sequences."""


def primary(pairs: tuple[Pair, ...]) -> Pair:
    """Return the pair that decisions and gauges read: total, else mismatch, else staleness.

    Args: pairs: the available pairs, at least one.
    Errors: ValueError if there is none.
    Source: formulas, section 1.
    """
    for pair in PRIMARY_ORDER:
        if pair in pairs:
            return pair
    raise ValueError("no pair: at least two of rollout_logprobs, old_logprobs and logprobs are required")
