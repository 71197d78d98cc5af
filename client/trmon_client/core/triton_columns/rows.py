"""The rows of the table that the programs of the kernel fill: their names and order. A stretch is a column of it."""

from __future__ import annotations

from trmon_client.core.reduction.kl_estimators import pairs_of

PAIR_SUMS: tuple[str, ...] = (
    *("n_band_low", "n_band_high", "n_trunc", "sum_d", "sum_abs_d", "sum_sq_d"),
    *("sum_ratio_dev", "sum_sq_ratio_dev", "sum_ratio_deficit", "sum_k3", "sum_trunc_ratio", "sum_sq_trunc_ratio"),
    *("sum_prob_diff", "sum_sq_prob_diff", "sum_binary_kl", "unused_sum"),
)
PAIR_MAXIMA: tuple[str, ...] = (
    *("negated_min_d", "negated_prefix_min_d", "max_d", "prefix_max_d"),
    *("max_k3", "max_prob_diff", "max_binary_kl", "unused_maximum"),
)
"""Of each pair; prefixes begin at the stretch. The kernel needs powers of two, so that some rows are of no use."""
PAIR_EXTREMES: tuple[str, ...] = tuple(stem.removeprefix("negated_") for stem in PAIR_MAXIMA)
POLICY_SUMS: tuple[str, ...] = ("sum_logp", "sum_sq_logp")
MOMENTS: tuple[str, ...] = ("sum_p", "sum_sq_p")
"""Of each policy, added in float64: where p is near 1 its variance is far below their squares."""
CROSS_MOMENTS: tuple[str, ...] = ("sum_pq",)
"""Of each pair, likewise."""
SEQUENCE_COUNTS: tuple[str, ...] = (
    *("n_tokens", "n_invalid", "n_mu_zero", "n_saturated", "n_clamped", "n_clipped", "n_leaked", "n_leaked_high"),
)
SEQUENCE_SUMS: tuple[str, ...] = ("sum_abs_is_dev", "sum_advantage")


def names_of_sums(policies: tuple[str, ...]) -> tuple[str, ...]:
    """Return the rows that are summed over the stretches of a sequence, which come first."""
    pairs = pairs_of(policies)
    return (
        *(f"{pair}_{stem}" for pair in pairs for stem in PAIR_SUMS),
        *(f"{pair}_{stem}" for pair in pairs for stem in CROSS_MOMENTS),
        *(f"{policy}_{stem}" for policy in policies for stem in POLICY_SUMS),
        *(f"{policy}_{stem}" for policy in policies for stem in MOMENTS),
        *SEQUENCE_COUNTS,
        *SEQUENCE_SUMS,
    )


def names_of_maxima(policies: tuple[str, ...]) -> tuple[str, ...]:
    """Return the rows of which the highest is taken; the position of the last one's token has a row after them."""
    return (*(f"{pair}_{stem}" for pair in pairs_of(policies) for stem in PAIR_MAXIMA), "max_abs_d")
