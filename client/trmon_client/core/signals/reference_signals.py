"""Computes the KL of the policy to a frozen reference policy, by k1, k2 and k3."""

from __future__ import annotations

import math

from trmon_client.core.columns.sequence_matrix import SequenceMatrix


def reference_signals(sequences: SequenceMatrix) -> dict[str, float]:
    """Return the signals of the reference policy; absent without its log-probs.

    Source: [K]; DeepSeek-V3.2 (arXiv 2512.02556), eq. 7; formulas, section 5.
    """
    sums = sequences.sums
    if "n_ref_tokens" not in sums:
        return {}
    n = sums["n_ref_tokens"] or math.nan
    largest = float(sequences.of_column("max_ref_k3").max())
    signals = {
        "ref_kl_k1": -sums["sum_ref_d"] / n,
        "ref_kl_k2": sums["sum_sq_ref_d"] / (2 * n),
        "ref_kl_k3": sums["sum_ref_k3"] / n,
        "ref_kl_k3_max": largest if largest >= 0 else math.nan,
    }
    if "sum_ref_k3_is" in sums:
        signals["ref_kl_k3_is"] = sums["sum_ref_k3_is"] / n
    return signals
