"""Which function computes each formula, and which test holds it against an independent computation.

Signals and presets come from their own registries; what else there is stands here. Tests check that every row leads to
a function with a source and to a test, and that nothing is left out.
"""

from __future__ import annotations

from typing import NamedTuple

from trmon_client.core.acceptance import PRESETS, TOKEN_POLICIES, TOKEN_RULES, Criterion, preset
from trmon_client.core.catalogue import SIGNALS, SignalSpec
from trmon_client.core.schema import DIVERGENCE_STEMS


class Formula(NamedTuple):
    """One row: `test` is below `tests`; `source` is given where the docstring does not say it.

    `function` is within `trmon_client.core`, or within `trmon.domain` if that is how it begins.
    """

    section: str
    name: str
    formula: str
    function: str
    test: str
    source: str = ""


PAIRS, VALIDITY = "1. Policies and pairs", "2. Valid, invalid and suspicious tokens"
COLUMNS, DIVERGENCES = "3. Columns of a sequence", "4. Divergences from logits"
SIGNALS_OF_A_BATCH, ACCEPTANCE, BOUNDS = "5. Signals of a batch", "6. Acceptance", "7. Error bounds"

_PLAIN = "core/test_statistics.py::test_columns_equal_the_plain_reference"
_OF_TOKENS = "core/test_token_decision.py::test_columns_count_what_masks_and_weights_hold"
_STATISTIC = "core/test_acceptance.py::test_each_statistic_is_what_its_name_says"
_OTHER_STATISTIC = "core/test_acceptance.py::test_each_statistic_of_other_inputs_is_what_its_name_says"
_DEFINITION = "core/test_divergence.py::test_columns_equal_their_definitions_in_extended_precision"
_BOUND = "core/test_bounds.py::test_golden_bounds_hold"

_POLICIES = (
    Formula(
        PAIRS,
        "pairs",
        "every pair whose two policies are given",
        "ratios.pairs_of",
        "core/test_statistics.py::test_every_golden_column_holds_and_no_other_column_appears",
    ),
    Formula(PAIRS, "d", "log p - log q of the pair's policies", "ratios.Ratios.of", _PLAIN),
    Formula(PAIRS, "primary", "total, else mismatch, else staleness", "schema.primary", _PLAIN),
    Formula(
        PAIRS,
        "mismatch, else primary",
        "the pair that engine rules read",
        "pair_choice.resolved",
        "core/test_token_decision.py::test_a_rule_reads_its_pair",
    ),
    Formula(
        VALIDITY,
        "valid",
        "mask set, and -1000 < every log-prob <= 1e-4",
        "validity.valid_mask",
        "core/test_divergence.py::test_the_valid_mask_is_the_tokens_that_statistics_count",
    ),
    Formula(VALIDITY, "clamped", "|d| <= 20 inside exponentials", "ratios.clamped", _PLAIN),
    Formula(
        VALIDITY,
        "empty",
        "no token counts: outside every mean",
        "sequences.Sequences.of",
        "core/test_signals.py::test_empty_and_all_invalid_sequences_are_outside_every_mean",
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
    "n_clamped": "#(|d| > 20) of the primary pair",
    "argmax_abs_d": "argmax |d| of the primary pair",
    "sum_logp_rollout": "sum log mu",
    "sum_logp_old": "sum log pi_old",
    "sum_logp": "sum log pi",
    "sum_abs_is_dev": "sum |rho_total - rho_mismatch|",
    "n_clipped": "#(rho > 1.2, A > 0) + #(rho < 0.8, A < 0)",
    "n_leaked": "#(rho > 1.2, A < 0) + #(rho < 0.8, A > 0)",
    "n_leaked_high": "#(rho > 1.2, A < 0)",
}
_LABEL_FORMULAS = {
    "advantage": "mean A over valid tokens",
    "version_min": "min version over valid tokens",
    "version_max": "max version over valid tokens",
    "reward": "as given",
}
_TOKEN_FORMULAS = {
    "n_token_masked": "#(valid tokens that a rule masks)",
    "n_token_truncated": "#(kept tokens whose weight is cut)",
    "sum_token_weight": "sum w",
    "sum_sq_token_weight": "sum w^2",
}

_COLUMNS = (
    *(Formula(COLUMNS, name, text, "statistics.columns", _PLAIN) for name, text in _COLUMN_FORMULAS.items()),
    *(
        Formula(
            COLUMNS,
            name,
            text,
            "statistics.columns",
            "core/test_statistics.py::test_advantages_and_versions_of_tokens_are_reduced_over_valid_tokens_only"
            if name != "reward"
            else "core/test_statistics.py::test_labels_of_a_sequence_pass_through",
        )
        for name, text in _LABEL_FORMULAS.items()
    ),
    Formula(
        COLUMNS,
        "group_id",
        "64 bits, or the first 8 bytes of BLAKE2b",
        "labels.group_labels",
        "core/test_labels.py::test_group_labels",
    ),
    *(Formula(COLUMNS, name, text, "token_decision.apply", _OF_TOKENS) for name, text in _TOKEN_FORMULAS.items()),
    Formula(
        COLUMNS,
        "k3",
        "rho - 1 - d, by its series near 0",
        "ratios.k3",
        "core/test_statistics.py::test_k3_is_exact_at_the_healthy_scale_where_float32_loses_it",
    ),
    Formula(COLUMNS, "histogram", "#(edge_i <= d < edge_(i+1))", "histogram.histograms", _PLAIN),
    Formula(
        COLUMNS,
        "histogram of a large batch",
        "#(edge_i <= d < edge_(i+1))",
        "histogram.sorted_in_place",
        "core/test_large.py::test_the_columns_are_those_of_the_plain_reduction",
    ),
    Formula(
        COLUMNS,
        "quantile of |d|",
        "from the histogram, within a bin",
        "quantiles.abs_quantiles",
        "core/test_quantiles.py::test_quantiles_of_the_histogram_are_right_within_a_bin",
    ),
    Formula(
        COLUMNS,
        "percentile over sequences",
        "linear between neighbours",
        "quantiles.percentile",
        "core/test_quantiles.py::test_percentiles_interpolate_linearly_as_numpy_does",
    ),
    Formula(
        COLUMNS,
        "outside [lower, upper]",
        "fraction of the histogram, within a bin",
        "token_whatif.outside",
        "core/test_token_whatif.py::test_the_share_outside_lies_between_its_bounds",
    ),
    Formula(
        COLUMNS,
        "merge",
        "sequences concatenated, histograms added",
        "columns.Columns.merge",
        "core/test_statistics.py::test_merged_parts_equal_the_whole",
    ),
)

_DIVERGENCE_FORMULAS = {
    "kl": "KL(p||q)",
    "reverse_kl": "KL(q||p)",
    "tv": "1/2 sum |p - q|",
    "entropy_rollout": "H(p)",
    "entropy": "H(q)",
}


def _of_divergence(stem: str) -> Formula:
    if stem == "n_unbounded":
        test = "core/test_divergence.py::test_every_golden_column_holds"
        return Formula(DIVERGENCES, stem, "#(KL = inf)", "divergence.exact", test)
    reduction, _, quantity = stem.partition("_")
    test = _DEFINITION if reduction != "argmax" else "core/test_divergence.py::test_every_golden_column_holds"
    text = f"{reduction} over tokens of {_DIVERGENCE_FORMULAS[quantity]}"
    return Formula(DIVERGENCES, stem, text, "divergence.exact", test)


_DIVERGENCES = (
    *(_of_divergence(stem) for stem in DIVERGENCE_STEMS),
    Formula(
        DIVERGENCES,
        "KL_S",
        "KL of {each v in S, the rest} <= KL(p||q)",
        "divergence.topk_lower_bound",
        "core/test_certificate.py::test_the_bound_is_never_above_the_exact_kl_and_never_infinite_where_that_is_not",
    ),
    Formula(
        DIVERGENCES,
        "KL_S of one token",
        "its last term -(1 - q_S) where 1 - p_S <= 1e-5",
        "certificate.lower_bounds",
        "core/test_certificate.py::test_every_golden_token_holds",
    ),
    Formula(
        DIVERGENCES,
        "refused top-k",
        "disagrees with mu by > 1e-3, or sums to 1 though k < V",
        "certificate.TopK.is_refused",
        "core/test_certificate.py::test_log_probs_that_are_not_of_one_whole_softmax_are_refused",
    ),
    Formula(
        DIVERGENCES,
        "certified",
        "KL_S > delta + 1e-4, or KL > delta",
        "acceptance.decide",
        "core/test_certificate.py::test_a_drift_beyond_delta_is_certified_without_the_engines_logits",
    ),
)


_SIGNALS_OF = {
    **dict.fromkeys(("reward", "zero", "group", "version"), "the_labels"),
    **dict.fromkeys(("kl", "reverse", "tv", "invalid"), "divergences_and_of_invalid_tokens"),
    "token": "token_rules",
}
"""What a signal of the batch is computed from, by the first word of its name; else from the log-probs."""


def _of_signal(spec: SignalSpec) -> Formula:
    given = "the_log_probs" if spec.per_pair else _SIGNALS_OF.get(spec.stem.split("_")[0], "the_log_probs")
    function = "pair_signals.pair_signals" if spec.per_pair else "signals.compute"
    if spec.stem in ("zero_variance_groups", "group_ratio_variance"):
        function = "group_signals.group_signals"
    test = f"core/test_signal_definitions.py::test_signals_of_{given}_are_what_their_definitions_say"
    return Formula(SIGNALS_OF_A_BATCH, spec.stem, spec.formula, function, test)


_SIGNALS = (
    *map(_of_signal, {spec.stem: spec for spec in SIGNALS.values()}.values()),
    Formula(
        SIGNALS_OF_A_BATCH,
        "k1, k2, k3",
        "at rho = 0.5, 1, 2, 10, 100",
        "signals.compute",
        "core/test_signals.py::test_k_estimators_have_their_golden_values",
    ),
    Formula(
        SIGNALS_OF_A_BATCH,
        "response_length_growth",
        "median of the last 5 over the median of 5 around 100 steps earlier",
        "trmon.domain.windows.Window.growth",
        "domain/test_windows.py::test_growth_is_against_five_values_around_a_hundred_steps_earlier",
    ),
    Formula(
        SIGNALS_OF_A_BATCH,
        "mask_rate and its parts",
        "rejected/(accepted + rejected): of sequences, tokens, lengths, signs of A",
        "trmon.domain.stages.maskrates.mask_rates",
        "domain/stages/test_maskrates.py::test_mask_rates",
    ),
)

_STATISTIC_FORMULAS = {
    "max_kl": "max KL",
    "mean_kl": "(sum KL)/T",
    "max_binary_kl": "max binary KL",
    "max_abs_d": "max |d|",
    "min_ratio": "exp(min d)",
    "max_ratio": "exp(max d)",
    "mean_k1": "-S/T",
    "sum_k1": "-S",
    "mean_k2": "(sum d^2)/(2T)",
    "sum_k2": "(sum d^2)/2",
    "max_k2": "max d^2/2",
    "mean_k3": "(sum k3)/T",
    "sum_k3": "sum k3",
    "max_k3": "max k3",
    "geo_ratio": "exp(S/T)",
    "seq_ratio": "exp(S)",
    "max_prob_diff": "max |p - q|",
    "prefix_range": "max(|prefix_min_d|, |prefix_max_d|)",
    "version_lag": "trainer_version - version_min",
}
_WITH_OTHER_INPUTS = {"max_kl", "mean_kl", "max_binary_kl", "version_lag"}


def _bounds_of(criterion: Criterion) -> str:
    lower = "" if criterion.lower is None else f"{criterion.lower:g} <= "
    upper = "" if criterion.upper is None else f" <= {criterion.upper:g}"
    where = "" if criterion.where is None else f" where {criterion.where}"
    return f"{lower}{criterion.statistic}{upper}{where}"


def _of_token_policy(name: str) -> Formula:
    rule, kind = TOKEN_POLICIES[name], TOKEN_RULES[name]
    bounds = f"upper {rule.upper:g}" if rule.lower is None else f"lower {rule.lower:g}, upper {rule.upper:g}"
    test = "core/test_token_decision.py::test_masks_and_weights_equal_the_plain_reference"
    return Formula(ACCEPTANCE, name, f"{kind.description}; {bounds}", "token_decision.apply", test, kind.source)


_ACCEPTANCE = (
    Formula(
        ACCEPTANCE,
        "invalid_logprobs, empty, then criteria",
        "n_invalid > 0; n_tokens = 0; NaN fails",
        "acceptance.decide",
        "core/test_acceptance.py::test_golden_decisions_hold",
    ),
    Formula(
        ACCEPTANCE,
        "mask_rate",
        "rejected/(accepted + rejected), empty ones left out",
        "decision.Decision.mask_rate",
        "core/test_acceptance.py::test_empty_sequences_are_outside_the_mask_rate_and_all_invalid_ones_inside",
    ),
    *(
        Formula(
            ACCEPTANCE,
            f"statistic {name}",
            text,
            "acceptance.decide",
            _OTHER_STATISTIC if name in _WITH_OTHER_INPUTS else _STATISTIC,
        )
        for name, text in _STATISTIC_FORMULAS.items()
    ),
    *(
        Formula(
            ACCEPTANCE,
            name,
            "; ".join(map(_bounds_of, preset(name).criteria)),
            "policy.preset",
            "core/test_acceptance.py::test_golden_decisions_hold",
            published.source,
        )
        for name, published in PRESETS.items()
    ),
    *map(_of_token_policy, TOKEN_POLICIES),
    Formula(
        ACCEPTANCE,
        "verl's options",
        "the eleven rejection modes, TIS, IcePop; u of k1 is [1/u, u]",
        "verl_options.rules",
        "core/test_verl_options.py::test_every_mode_keeps_the_tokens_that_its_name_says",
    ),
    Formula(
        ACCEPTANCE,
        "what a token rule would mask or cut",
        "share of tokens outside its range of d",
        "token_whatif.masked_or_cut",
        "core/test_token_whatif.py::test_a_policys_what_if_holds_what_the_policy_does",
    ),
    Formula(
        ACCEPTANCE,
        "L, se(L)",
        "(1/N) sum_i M_i A_i (sum_t rho_t - T_i)",
        "surrogate.surrogate",
        "core/test_surrogate.py::test_it_is_the_plain_mean_over_sequences_and_its_standard_error",
    ),
)

_BOUNDS = (
    Formula(BOUNDS, "trpo", "T(T-1) D", "bounds.error_bounds", _BOUND),
    Formula(BOUNDS, "pinsker_marginal", "4/3 T^1.5 D", "bounds.error_bounds", _BOUND),
    Formula(BOUNDS, "mixed", "2T sqrt(D D_seq)", "bounds.error_bounds", _BOUND),
    Formula(BOUNDS, "adaptive", "min(pinsker_marginal, mixed)", "bounds.error_bounds", _BOUND),
    Formula(BOUNDS, "vacuous", "adaptive > 1", "bounds.error_bounds", _BOUND),
    Formula(
        BOUNDS,
        "D of a batch",
        "min(largest KL(p||q), largest KL(q||p), delta)",
        "bounds.batch_bounds",
        "core/test_bounds.py::test_the_smaller_of_the_two_largest_kls_bounds_never_the_largest_of_the_smaller",
    ),
    Formula(
        BOUNDS,
        "of accepted sequences",
        "D = min(delta, largest accepted KL)",
        "bounds.batch_bounds",
        "core/test_bounds.py::test_the_bound_of_accepted_sequences_reads_those_alone_and_no_more_than_delta",
    ),
    Formula(
        BOUNDS,
        "rewards of range r",
        "r times each bound",
        "bounds.error_bounds",
        "core/test_bounds.py::test_a_range_of_rewards_scales_the_bounds_and_what_counts_as_vacuous",
    ),
    Formula(BOUNDS, "max_delta", "max(3b/(4 T^1.5), (b/2T)^2/D_seq)", "bounds.max_delta", _BOUND),
    Formula(
        BOUNDS,
        "improvement_supported",
        "KL exact, nothing rejected, L - 2 se(L) > adaptive",
        "improvement.improvement",
        "core/test_improvement.py::test_a_gain_beyond_two_standard_errors_and_the_bound_is_supported",
    ),
    Formula(
        BOUNDS,
        "alpha split",
        "max |p - q| of staleness (alpha_0) and of mismatch (alpha_1)",
        "alpha.alpha_split",
        "core/test_alpha.py::test_the_split_is_of_the_largest_gaps_of_probability",
    ),
)

FORMULAS: tuple[Formula, ...] = (*_POLICIES, *_COLUMNS, *_DIVERGENCES, *_SIGNALS, *_ACCEPTANCE, *_BOUNDS)
"""Every formula of sections 1 to 7."""
