"""The formulas of sections 1 to 4: policies and pairs, valid tokens, the columns of a sequence, divergences."""

from __future__ import annotations

from trmon_client.core.column_schema import DIVERGENCE_STEMS

from .formula import COLUMNS, DIVERGENCES, PAIRS, VALIDITY, Formula, rows

_PLAIN = "core/test_statistics.py::test_columns_equal_the_plain_reference"
_OF_TOKENS = "core/policies/test_token_decision.py::test_columns_sum_the_masks_and_weights"
_GOLDEN = "core/divergence/test_divergence_columns.py::test_columns_equal_the_golden_values"
_DEFINITION = "core/divergence/test_divergence_columns.py::test_columns_equal_their_definitions_in_extended_precision"

_POLICIES = (
    Formula(
        PAIRS,
        "pairs",
        "every pair whose two policies are given",
        "reduction.token_terms.pairs_of",
        "core/test_statistics.py::test_columns_equal_the_golden_values_and_no_other_column_exists",
    ),
    Formula(PAIRS, "d", "log p - log q of the pair's policies", "reduction.token_terms.TokenRatios.of", _PLAIN),
    Formula(PAIRS, "primary", "total, else mismatch, else staleness", "column_schema.primary", _PLAIN),
    Formula(
        PAIRS,
        "mismatch, else primary",
        "the pair that engine rules read",
        "policies.criteria.resolve_pair",
        "core/policies/test_token_decision.py::test_a_rule_reads_its_pair_and_names_what_is_missing",
    ),
    Formula(
        VALIDITY,
        "valid",
        "mask set, and -1000 < every log-prob <= 1e-4",
        "inputs.checked_inputs.valid_mask",
        "core/divergence/test_divergence_columns.py::test_the_valid_mask_marks_the_tokens_that_statistics_count",
    ),
    Formula(VALIDITY, "clamped", "|d| <= 20 inside exponentials", "reduction.token_terms.clamp_log_ratio", _PLAIN),
    Formula(
        VALIDITY,
        "empty",
        "no token counts: outside every mean",
        "columns.SequenceMatrix.of",
        "core/signals/test_batch_signals.py::test_empty_and_all_invalid_sequences_are_outside_every_mean",
    ),
)

_COLUMN_FORMULAS = {
    "sum_d": "sum d",
    "sum_abs_d": "sum |d|",
    "sum_sq_d": "sum d^2",
    "min_d": "min d",
    "max_d": "max d",
    "sum_ratio_dev": "sum rho - 1",
    "sum_sq_ratio_dev": "sum (rho - 1)^2",
    "sum_ratio_deficit": "sum max(0, 1 - rho)",
    "sum_k3": "sum rho - 1 - d",
    "max_k3": "max rho - 1 - d",
    "n_band_low": "#(rho < 0.5)",
    "n_band_high": "#(rho > 5)",
    "n_trunc": "#(rho > 2)",
    "sum_trunc_ratio": "sum min(rho, 2)",
    "sum_sq_trunc_ratio": "sum min(rho, 2)^2",
    "max_prob_diff": "max |p - q|",
    "sum_prob_diff": "sum |p - q|",
    "sum_sq_prob_diff": "sum (p - q)^2",
    "sum_p": "sum p",
    "sum_q": "sum q",
    "sum_pp": "sum p^2",
    "sum_qq": "sum q^2",
    "sum_pq": "sum p q",
    "sum_binary_kl": "sum q log(q/p) + (1 - q) log((1 - q)/(1 - p))",
    "max_binary_kl": "max q log(q/p) + (1 - q) log((1 - q)/(1 - p))",
    "prefix_min_d": "min_t d_1 + ... + d_t",
    "prefix_max_d": "max_t d_1 + ... + d_t",
    "n_tokens": "#(valid)",
    "n_invalid": "#(counts and is not valid)",
    "n_saturated": "#(log mu = 0 and pi_old, else pi, < 0.99)",
    "n_mu_zero": "#(valid and log mu = 0)",
    "n_mu_zero_unlikely": "#(valid and log mu = 0 and pi_old, else pi, < 0.5)",
    "n_unlikely": "#(valid and pi_old, else pi, < 0.5)",
    "n_prob_diff_half": "#(valid and |p - mu| > 0.5), p of pi_old, else of pi",
    "n_zero_tail": "#(counting tokens after the last one that is not valid with log mu = 0)",
    "n_positive": "#(counts and a given log-prob > 1e-4); these are invalid",
    "max_positive": "max of these log-probs",
    "n_clamped": "#(|d| > 20) of the primary pair",
    "argmax_abs_d": "argmax |d| of the primary pair",
    "sum_logp_rollout": "sum log mu",
    "sum_logp_old": "sum log pi_old",
    "sum_logp": "sum log pi",
    "sum_sq_logp_rollout": "sum (log mu)^2",
    "sum_sq_logp_old": "sum (log pi_old)^2",
    "sum_sq_logp": "sum (log pi)^2",
    "sum_abs_is_dev": "sum |rho_total - rho_mismatch|",
    "n_clipped": "#(rho > 1.2, A > 0) + #(rho < 0.8, A < 0)",
    "n_leaked": "#(rho > 1.2, A < 0) + #(rho < 0.8, A > 0)",
    "n_leaked_high": "#(rho > 1.2, A < 0)",
    "n_clipped_high": "#(rho > 1.2, A > 0)",
    "n_dual_clipped": "#(rho > 3, A < 0)",
    "n_positive_advantage": "#(valid and A > 0)",
    "n_negative_advantage": "#(valid and A < 0)",
}
_LABEL_FORMULAS = {
    "advantage": "mean A over valid tokens",
    "version_min": "min version over valid tokens",
    "version_max": "max version over valid tokens",
}
_COPIED_LABELS = {
    "reward": "as given",
    "truncated": "1 where given as not 0",
    "finish_reason": "0 stop, 1 length, 2 abort, 3 any other, -1 unknown",
}
_TURN_FORMULAS = {
    "n_tokens of a turn": "#(valid tokens of the turn)",
    "sum_d of a turn": "sum d over the turn",
    "sum_k3 of a turn": "sum rho - 1 - d over the turn",
    "max_abs_d of a turn": "max |d| over the turn",
    "sum_binary_kl of a turn": "sum of the binary KL over the turn",
}
_TOKEN_FORMULAS = {
    "n_token_masked": "#(valid tokens that a rule masks)",
    "n_token_truncated": "#(kept tokens whose weight is cut)",
    "sum_token_weight": "sum w",
    "sum_sq_token_weight": "sum w^2",
}

_COLUMNS = (
    *rows(COLUMNS, _COLUMN_FORMULAS, "statistics.columns", _PLAIN),
    *rows(
        COLUMNS,
        _LABEL_FORMULAS,
        "statistics.columns",
        "core/reduction/test_sequences.py::test_advantages_and_versions_of_tokens_are_reduced_over_valid_tokens_only",
    ),
    *rows(
        COLUMNS,
        _COPIED_LABELS,
        "statistics.columns",
        "core/reduction/test_sequences.py::test_labels_of_a_sequence_are_copied",
    ),
    Formula(
        COLUMNS,
        "group_id",
        "64 bits, or the first 8 bytes of BLAKE2b",
        "inputs.labels.group_labels",
        "core/inputs/test_checked_inputs.py::test_integer_labels_are_kept_and_others_hashed",
    ),
    *rows(COLUMNS, _TOKEN_FORMULAS, "policies.token_decision.apply_token_rules", _OF_TOKENS),
    *rows(
        COLUMNS,
        _TURN_FORMULAS,
        "reduction.turns.turn_columns",
        "core/reduction/test_turns.py::test_every_case_of_three_tokens_equals_the_plain_reference",
    ),
    Formula(
        COLUMNS,
        "k3",
        "rho - 1 - d, by its series near 0",
        "reduction.token_terms.k3",
        "core/test_statistics.py::test_k3_is_accurate_at_the_healthy_scale_where_float32_is_not",
    ),
    Formula(COLUMNS, "histogram", "#(edge_i <= d < edge_(i+1))", "columns.histograms", _PLAIN),
    Formula(
        COLUMNS,
        "histogram of a large batch",
        "#(edge_i <= d < edge_(i+1))",
        "columns.histogram_in_place",
        "core/large_batches/test_reduction.py::test_columns_equal_those_of_the_general_reduction",
    ),
    Formula(
        COLUMNS,
        "quantile of |d|",
        "from the histogram, within a bin",
        "columns.abs_quantiles",
        "core/test_columns.py::test_quantiles_of_the_histogram_are_accurate_to_a_bin",
    ),
    Formula(
        COLUMNS,
        "percentile over sequences",
        "linear between neighbours",
        "columns.percentile",
        "core/test_columns.py::test_percentiles_interpolate_linearly_like_numpy",
    ),
    Formula(
        COLUMNS,
        "outside [lower, upper]",
        "fraction of the histogram, within a bin",
        "policies.token_whatif.fraction_outside",
        "core/policies/test_decide.py::test_the_fraction_outside_lies_between_its_limits",
    ),
    Formula(
        COLUMNS,
        "merge",
        "sequences concatenated, histograms added",
        "columns.Columns.merge",
        "proof/test_properties.py::test_merged_parts_are_the_whole",
    ),
)

_DIVERGENCE_FORMULAS = {
    "kl": "KL(p||q)",
    "reverse_kl": "KL(q||p)",
    "tv": "1/2 sum |p - q|",
    "tv_mismatch": "1/2 sum |pi_old - mu|",
    "tv_staleness": "1/2 sum |pi - pi_old|",
    "entropy_rollout": "H(p)",
    "entropy": "H(q)",
}
_REFERENCE_FORMULAS = {
    "n_ref_tokens": "#(valid, and log ref is valid)",
    "sum_ref_d": "sum d, d = log ref - log pi (else pi_old, else mu)",
    "sum_sq_ref_d": "sum d^2",
    "sum_ref_k3": "sum e^d - 1 - d",
    "max_ref_k3": "max e^d - 1 - d",
    "sum_ref_k3_is": "sum (pi/mu) (e^d - 1 - d)",
}
_REPETITION_FORMULAS = {
    "n_four_grams": "#(four neighbouring tokens that count)",
    "n_repeated_four_grams": "#(4-grams that occurred earlier in the sequence)",
}
_REPETITION = rows(
    COLUMNS,
    _REPETITION_FORMULAS,
    "reduction.repetition.repetition_columns",
    "core/reduction/test_sequences.py::test_both_counts_equal_a_plain_count",
)
_REFERENCE = rows(
    COLUMNS,
    _REFERENCE_FORMULAS,
    "reduction.sequences.reference_columns",
    "core/reduction/test_sequences.py::test_columns_equal_the_plain_reference",
)


def _of_divergence(stem: str) -> Formula:
    if stem == "n_unbounded":
        return Formula(DIVERGENCES, stem, "#(KL = inf)", "divergence.exact", _GOLDEN)
    if stem == "sum_pi_squared":
        test = "core/divergence/test_divergence_columns.py::test_merged_parts_of_any_vocabulary_equal_the_definitions"
        return Formula(DIVERGENCES, stem, "sum over tokens of sum_v q_v^2", "divergence.exact", test)
    reduction, _, quantity = stem.partition("_")
    text, test = f"{reduction} over tokens of {_DIVERGENCE_FORMULAS[quantity]}", _DEFINITION
    if "_tv_" in stem:
        test = "core/divergence/test_divergence_columns.py::"
        test += "test_the_logits_of_all_three_policies_give_the_total_variation_of_both_gaps"
    elif reduction == "argmax":
        test = _GOLDEN
    return Formula(DIVERGENCES, stem, text, "divergence.exact", test)


_DIVERGENCES = (
    *(_of_divergence(stem) for stem in DIVERGENCE_STEMS),
    Formula(
        DIVERGENCES,
        "merge of parts of a vocabulary",
        "Z, sum e, sum a relative to the joint maximum; e by the change of max b - max a",
        "divergence.vocabulary_sums.DivergenceSums.merged",
        "core/divergence/test_divergence_columns.py::test_merged_parts_of_any_vocabulary_equal_the_definitions",
    ),
    Formula(
        DIVERGENCES,
        "a vocabulary that ranks share",
        "one gather of ten sums a token; for TV one more number",
        "divergence.exact_streamed",
        "core/divergence/test_divergence_columns.py::test_ranks_that_share_a_vocabulary_agree_with_the_whole",
    ),
    Formula(
        DIVERGENCES,
        "from hidden states",
        "(h W^T + b)/T, in tiles of tokens and vocabulary",
        "divergence.divergence_columns.StreamedLogits.divergences",
        "core/divergence/test_divergence_columns.py::test_hidden_states_give_the_divergences_of_their_logits",
    ),
    Formula(
        DIVERGENCES,
        "KL_S",
        "KL of {each v in S, the rest} <= KL(p||q)",
        "divergence.topk_lower_bound",
        "proof/test_properties.py::test_the_bound_from_the_top_k_never_exceeds_the_exact_kl",
    ),
    Formula(
        DIVERGENCES,
        "KL_S of one token",
        "its last term -(1 - q_S) where 1 - p_S <= 1e-5",
        "divergence.topk_certificate.lower_bounds",
        "core/divergence/test_topk_certificate.py::test_token_bounds_equal_the_golden_values",
    ),
    Formula(
        DIVERGENCES,
        "refused top-k",
        "disagrees with mu by > 1e-3, or sums to 1 though k < V",
        "divergence.topk_certificate.TopK.is_rejected",
        "core/divergence/test_topk_certificate.py::test_log_probs_that_are_not_of_one_whole_softmax_are_rejected",
    ),
    Formula(
        DIVERGENCES,
        "certified",
        "KL_S > delta + 1e-4, or KL > delta",
        "acceptance.decide",
        "core/divergence/test_topk_certificate.py::test_a_drift_above_delta_is_certified_without_the_logits_of_the_engine",
    ),
)

OF_SEQUENCES: tuple[Formula, ...] = (*_POLICIES, *_COLUMNS, *_REPETITION, *_REFERENCE, *_DIVERGENCES)
"""Every formula of sections 1 to 4."""
