"""The formulas of sections 5 to 7: the signals of a batch, acceptance, error bounds."""

from __future__ import annotations

from trmon_client.core.policies.criteria import TOKEN_RULES, Criterion
from trmon_client.core.policies.policy import preset
from trmon_client.core.policies.presets import PRESETS, TOKEN_POLICIES, VERL_PRESETS
from trmon_client.core.signals.catalogue import SIGNALS, SignalSpec

from .formula import ACCEPTANCE, BOUNDS, SIGNALS_OF_A_BATCH, Formula, rows

_BOUND = "core/test_bounds.py::test_bounds_equal_the_golden_values"

_SIGNALS_OF = {
    **dict.fromkeys(
        ("reward", "advantage", "zero", "all", "none", "effective", "group", "version", "length"), "the_labels"
    ),
    **dict.fromkeys(("kl", "reverse", "tv", "invalid"), "divergences_and_of_invalid_tokens"),
    "ref": "the_reference_policy",
    "token": "token_rules",
}
"""What a signal of the batch is computed from, by the first word of its name; else from the log-probs."""

_FINISH_SIGNALS = ("finish_stop_share", "finish_abort_share", "finish_other_share")
_PROMPT_SIGNALS = ("distinct_prompts", "distinct_prompt_share")
_SIGNALS_BY_SIGN = (
    *("sampled_entropy_positive", "sampled_entropy_negative"),
    *("ratio_mean_positive", "ratio_mean_negative"),
)
_REPETITION_SIGNALS = ("repeated_share", "repeated_share_p95")
_OWN_TESTS = {
    **dict.fromkeys(
        _FINISH_SIGNALS,
        "core/signals/test_batch_signals.py"
        "::test_finish_reasons_are_shares_of_the_known_ones_also_of_responses_without_a_counted_token",
    ),
    **dict.fromkeys(
        _PROMPT_SIGNALS,
        "core/signals/test_batch_signals.py::test_distinct_prompts_are_the_group_ids_of_sequences_with_tokens",
    ),
    **dict.fromkeys(
        _SIGNALS_BY_SIGN,
        "core/signals/test_batch_signals.py"
        "::test_entropy_and_ratio_by_the_sign_of_the_advantage_equal_those_of_the_sequences_alone",
    ),
    **dict.fromkeys(
        _REPETITION_SIGNALS,
        "core/reduction/test_sequences.py::test_the_share_is_of_all_responses_and_its_quantile_of_those_with_a_4_gram",
    ),
}
_GROUP_SIGNALS = (
    *("zero_variance_groups", "all_solved_groups", "none_solved_groups"),
    *("effective_signal", "group_ratio_variance", *_PROMPT_SIGNALS),
)
_REWARD_SIGNALS = (
    *("reward_mean", "reward_std", "reward_min", "reward_q01", "reward_q05", "reward_q25", "reward_median"),
    *("reward_q75", "reward_q95", "reward_q99", "reward_max", "reward_invalid_share"),
    "reward_length_corr",
)
_ADVANTAGE_SIGNALS = ("advantage_max", "advantage_min", "advantage_invalid_share")
_ROLLOUT_SIGNALS = (
    *("n_mu_zero", "n_mu_zero_unlikely", "n_unlikely", "n_prob_diff_half", "n_zero_tail"),
    *("mu_logprob_mean", "logp_unit", "logp_unit_residual", "seq_shift_share"),
)
_LENGTH_SIGNALS = (
    *("response_length_mean", "response_length_median", "response_length_p95", "response_length_max"),
    *("length_limit_share", *_FINISH_SIGNALS, *_REPETITION_SIGNALS),
)
_REGRESSION_SIGNALS = (
    *("logp_slope_q", "logp_slope_p", "logp_corr_q", "temperature_near", "temperature_far"),
    "ln_e_value",
)
_FUNCTIONS = {
    **dict.fromkeys(_SIGNALS_BY_SIGN, "signals.group_signals.signals_by_sign"),
    **dict.fromkeys(_GROUP_SIGNALS, "signals.group_signals.group_signals"),
    **dict.fromkeys(_REWARD_SIGNALS, "signals.group_signals.reward_signals"),
    **dict.fromkeys(_ADVANTAGE_SIGNALS, "signals.group_signals.advantage_signals"),
    **dict.fromkeys(_ROLLOUT_SIGNALS, "signals.batch_signals.rollout_signals"),
    **dict.fromkeys(_LENGTH_SIGNALS, "signals.group_signals.length_signals"),
    **dict.fromkeys(_REGRESSION_SIGNALS, "signals.batch_signals.regression_signals"),
}


_GRADIENT_SIGNALS = ("proxy2_total_power_low", "proxy2_total_power_high", "logp_advantage_cov", "leak_share")
_REFERENCE_SIGNALS = ("ref_kl_k1", "ref_kl_k2", "ref_kl_k3", "ref_kl_k3_max", "ref_kl_k3_is")
_FUNCTIONS |= {
    **dict.fromkeys(_GRADIENT_SIGNALS, "signals.batch_signals.gradient_signals"),
    **dict.fromkeys(_REFERENCE_SIGNALS, "signals.batch_signals.reference_signals"),
}


def _of_signal(spec: SignalSpec) -> Formula:
    given = "the_log_probs" if spec.pair else _SIGNALS_OF.get(spec.stem.split("_")[0], "the_log_probs")
    given = "the_gradient" if spec.stem in _GRADIENT_SIGNALS else given
    function = "signals.pair_signals.pair_signals" if spec.pair else "signals.compute"
    function = _FUNCTIONS.get(spec.stem, function)
    test = f"core/signals/test_signal_definitions.py::test_signals_of_{given}_equal_their_definitions"
    if "_exact_tv_" in spec.stem:
        test = "core/signals/test_batch_signals.py::test_the_exact_variation_of_each_gap_is_its_largest_and_its_mean"
    return Formula(SIGNALS_OF_A_BATCH, spec.stem, spec.formula, function, _OWN_TESTS.get(spec.stem, test))


_SIGNALS = (
    *map(_of_signal, {spec.stem: spec for spec in SIGNALS.values()}.values()),
    Formula(
        SIGNALS_OF_A_BATCH,
        "k1, k2, k3",
        "at rho = 0.5, 1, 2, 10, 100",
        "signals.compute",
        "core/signals/test_batch_signals.py::test_k_estimators_have_their_golden_values",
    ),
    Formula(
        SIGNALS_OF_A_BATCH,
        "E-value of a histogram",
        "log mean_l prod (1 + l (rho - 1)), rho at lower edges, l = .01, .03, .1, .3, .9",
        "signals.batch_signals.ln_e_values",
        "core/signals/test_gradient_signals.py::test_log_probs_of_another_sampler_have_a_large_e_value",
    ),
    Formula(
        SIGNALS_OF_A_BATCH,
        "range of the temperature",
        "1 + logp_slope_q to 1 + var(d)/cov(d, log q)",
        "signals.batch_signals.regression_signals",
        "core/signals/test_gradient_signals.py::test_the_slopes_bracket_the_ratio_of_temperatures",
    ),
    Formula(
        SIGNALS_OF_A_BATCH,
        "response_length_growth",
        "median of the last 5 over the median of 5 around 100 steps earlier",
        "trmon.domain.signals.windows.SignalWindow.growth",
        "domain/signals/test_run_features.py::test_growth_is_against_five_values_around_a_hundred_steps_earlier",
    ),
    Formula(
        SIGNALS_OF_A_BATCH,
        "proxy1_signal_strength, proxy3_pure_noise",
        "grad_norm^2; (proxy2 - proxy1)/(N - 1), at least 0",
        "trmon.domain.signals.run_features.gradient_noise",
        "domain/signals/test_run_features.py::test_the_band_contains_the_variance_of_the_mean_gradient",
    ),
    Formula(
        SIGNALS_OF_A_BATCH,
        "grad_cosine",
        "cosine of the random projections of two gradients",
        "gradients.cosine",
        "client/test_gradient_sketch.py::test_the_cosine_of_projections_is_near_that_of_the_gradients",
    ),
    Formula(
        SIGNALS_OF_A_BATCH,
        "signal, noise and SNR of a gradient",
        "|E g|^2 = (|sum g|^2 - sum |g|^2)/(K(K - 1)); tr Var g = (sum |g|^2 - K |mean|^2)/(K - 1); K signal/noise",
        "gradients.gradient_moments",
        "core/test_gradients.py::test_signal_and_noise_have_their_expectation_over_every_batch",
    ),
    Formula(
        SIGNALS_OF_A_BATCH,
        "progress proxy (a conjecture)",
        "<grad J, E g>^2/(tr Var g + |Bias g|^2); of a vector grad J no noise is taken off",
        "gradients.progress_proxy",
        "core/test_gradients.py::test_its_terms_have_their_expectation_over_every_batch",
    ),
    Formula(
        SIGNALS_OF_A_BATCH,
        "mask_rate and its parts",
        "rejected/(accepted + rejected): of sequences, tokens, lengths, signs of A",
        "trmon.domain.pipeline.replay.mask_rates",
        "domain/pipeline/test_replay.py::test_mask_rates",
    ),
    Formula(
        SIGNALS_OF_A_BATCH,
        "turn_mask_rate and its tokens",
        "rejected turns/turns with valid tokens; the same weighted by tokens",
        "trmon.domain.pipeline.replay.turn_mask_rates",
        "domain/pipeline/test_replay.py::test_the_mask_rates_of_turns_are_of_turns_with_tokens",
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


def _bounds_of(criterion: Criterion) -> str:
    lower = "" if criterion.lower is None else f"{criterion.lower:g} <= "
    upper = "" if criterion.upper is None else f" <= {criterion.upper:g}"
    where = "" if criterion.where is None else f" where {criterion.where}"
    return f"{lower}{criterion.statistic}{upper}{where}"


_DPPO = "test_token_decision.py::test_dppo_masks_updates_that_move_further_away_and_truncates_the_rest"
_TOKEN_TESTS = {
    "dppo": _DPPO,
    "dppo_kl": _DPPO,
    "m2po": "test_token_decision.py::test_it_keeps_the_largest_set_of_tokens_whose_second_moment_is_below_the_limit",
    "cispo": "test_token_decision.py::test_cispo_weights_by_the_ratio_of_ppo_truncated_above_alone",
}
_GOLDEN_PRESET = "test_decide.py::test_every_preset_decides_as_the_golden_file_states"
_PRESET_TESTS = {
    "gspo": "test_token_decision.py::"
    "test_gspo_rejects_the_sequences_on_the_clipped_branch_and_weights_by_their_mean_ratio",
    "seq_mis_two_sided": "test_token_decision.py::"
    "test_two_sided_mis_weights_sequences_between_both_bounds_and_masks_the_others",
    "close_versions": "test_token_decision.py::test_close_versions_keeps_sequences_up_to_the_lag",
}
"""Tests of the policies that the golden files do not hold."""


def _of_token_policy(name: str) -> Formula:
    rule, kind = TOKEN_POLICIES[name], TOKEN_RULES[name]
    bounds = f"upper {rule.upper:g}" if rule.lower is None else f"lower {rule.lower:g}, upper {rule.upper:g}"
    test = _TOKEN_TESTS.get(name, "test_token_decision.py::test_masks_and_weights_equal_the_plain_reference")
    return Formula(
        ACCEPTANCE,
        name,
        f"{kind.description}; {bounds}",
        "policies.token_decision.kept_by_second_moment"
        if name == "m2po"
        else "policies.token_decision.apply_token_rules",
        f"core/policies/{test}",
        kind.source,
    )


_TURN_STATISTICS = {
    "turn_max_abs_d": "max_abs_d of the turn",
    "turn_mean_k1": "-sum_d/n_tokens of the turn",
    "turn_mean_k3": "sum_k3/n_tokens of the turn",
    "turn_mean_binary_kl": "sum_binary_kl/n_tokens of the turn",
}

_ACCEPTANCE = (
    Formula(
        ACCEPTANCE,
        "invalid_logprobs, empty, then criteria",
        "n_invalid > 0; n_tokens = 0; NaN fails",
        "acceptance.decide",
        "core/policies/test_decide.py::test_every_preset_decides_as_the_golden_file_states",
    ),
    Formula(
        ACCEPTANCE,
        "mask_rate",
        "rejected/(accepted + rejected), empty ones left out",
        "policies.decision.Decision.mask_rate",
        "core/policies/test_decide.py::test_the_mask_rate_excludes_empty_sequences_and_includes_all_invalid_ones",
    ),
    *rows(
        ACCEPTANCE,
        {
            f"statistic {name}": f"{text}; a rejected turn masks its tokens only"
            for name, text in _TURN_STATISTICS.items()
        },
        "policies.decision.decide_turns",
        "core/policies/test_turn_decision.py::test_every_case_is_decided_as_in_plain_python",
    ),
    *rows(
        ACCEPTANCE,
        {f"statistic {name}": text for name, text in _STATISTIC_FORMULAS.items()},
        "acceptance.decide",
        "core/policies/test_decide.py::test_each_statistic_equals_its_definition",
    ),
    *(
        Formula(
            ACCEPTANCE,
            name,
            "; ".join(map(_bounds_of, preset(name).criteria)),
            "policies.policy.preset",
            f"core/policies/{_PRESET_TESTS.get(name, _GOLDEN_PRESET)}",
            published.source,
        )
        for name, published in PRESETS.items()
    ),
    *map(_of_token_policy, TOKEN_POLICIES),
    Formula(
        ACCEPTANCE,
        "verl's options",
        "the seven fields, the eleven rejection modes, TIS, IcePop; u of k1 is [1/u, u]",
        "policies.presets.rules_from_verl",
        "core/policies/test_policy.py::test_every_mode_keeps_the_tokens_that_its_name_implies",
    ),
    *(
        Formula(
            ACCEPTANCE,
            name,
            "; ".join(f"{key} {value}" for key, value in options.items()) or "accepts every valid sequence",
            "policies.policy.preset",
            "peers/verl/test_masks_and_weights.py::test_masks_and_weights_of_every_preset_equal_those_of_verl",
            "verl 0.9.1",
        )
        for name, options in VERL_PRESETS.items()
    ),
    Formula(
        ACCEPTANCE,
        "what m2po would drop",
        "share above the second moment of the bins of d, at their smallest and largest |d|",
        "policies.token_decision.fraction_dropped",
        "core/policies/test_token_decision.py::test_the_fraction_dropped_of_counted_values_is_that_of_the_tokens",
    ),
    Formula(
        ACCEPTANCE,
        "what a token rule would mask or cut",
        "share of tokens outside its range of d",
        "policies.token_whatif.affected_fractions",
        "core/policies/test_decide.py::test_the_estimate_contains_the_true_effect_of_the_policy",
    ),
    Formula(
        ACCEPTANCE,
        "excess",
        "(s - upper)/|upper| above, (lower - s)/|lower| below, 0 within; logs for ratios",
        "policies.decision.relative_excess",
        "core/policies/test_decide.py::test_weights_equal_the_definition_over_enumerated_statistics_and_bounds",
    ),
    Formula(
        ACCEPTANCE,
        "soft weight M",
        "exp(-max over criteria of excess/soft_tau); 0 if invalid, empty or NaN",
        "policies.decision.soft_weights",
        "core/policies/test_decide.py::test_the_largest_excess_of_all_criteria_counts",
    ),
    Formula(
        ACCEPTANCE,
        "effective share",
        "(sum w)^2/(N sum w^2)",
        "trmon.domain.analysis.whatif.WeightTotal.effective_share",
        "domain/analysis/test_whatif.py::test_a_soft_policy_adds_up_the_weights_of_its_sequences",
    ),
    Formula(
        ACCEPTANCE,
        "L of soft masking",
        "(1/N) sum_i M_i A_i (sum_t rho_t - T_i), M in [0, 1] constant",
        "bounds.surrogate",
        "proof/test_surrogate.py::test_the_gradient_of_soft_masking_is_the_weighted_policy_gradient",
    ),
    Formula(
        ACCEPTANCE,
        "L, se(L)",
        "(1/N) sum_i M_i A_i (sum_t rho_t - T_i)",
        "bounds.surrogate",
        "core/test_bounds.py::test_the_surrogate_is_the_mean_over_sequences_with_its_standard_error",
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
        "core/test_bounds.py::test_bounds_use_the_minimum_of_the_two_maxima_not_the_maximum_of_the_minima",
    ),
    Formula(
        BOUNDS,
        "of accepted sequences",
        "D = min(delta, largest accepted KL)",
        "bounds.batch_bounds",
        "core/test_bounds.py::test_bounds_of_accepted_sequences_ignore_the_others_and_cap_the_kl_at_delta",
    ),
    Formula(
        BOUNDS,
        "rewards of range r",
        "r times each bound",
        "bounds.error_bounds",
        "core/test_bounds.py::test_the_reward_range_scales_the_bounds_and_the_limit_of_vacuousness",
    ),
    Formula(BOUNDS, "max_delta", "max(3b/(4 T^1.5), (b/2T)^2/D_seq)", "bounds.max_delta", _BOUND),
    Formula(
        BOUNDS,
        "improvement_supported",
        "KL exact, nothing rejected, L - 2 se(L) > adaptive",
        "bounds.improvement",
        "core/test_bounds.py::test_a_gain_above_two_standard_errors_and_the_bound_is_supported",
    ),
    Formula(
        BOUNDS,
        "alpha split",
        "max exact TV, else max |p - q|, of staleness (alpha_0) and of mismatch (alpha_1); unknown if engine_lag > 0",
        "bounds.alpha_split",
        "core/test_bounds.py::test_the_split_holds_the_largest_differences_of_probability",
    ),
    Formula(
        BOUNDS,
        "minorizer",
        "L - adaptive of the sequences in the loss, with the weights M of a soft policy",
        "bounds.minorizer",
        "proof/test_surrogate.py::test_the_gain_is_at_least_the_minorizer",
    ),
)

OF_BATCHES: tuple[Formula, ...] = (*_SIGNALS, *_ACCEPTANCE, *_BOUNDS)
"""Every formula of sections 5 to 7."""
