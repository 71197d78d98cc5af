"""The formulas of sections 8 to 11: what is computed over the steps of a run, and over its routers."""

from __future__ import annotations

from .formula import ADAPTATION, BUDGETS, COLLAPSE, HEALTH, Formula

_ADAPTATION = (
    Formula(
        ADAPTATION,
        "calibrated bound",
        "2 max(q_pooled, q_steps), at least the published bound, at most its ceiling",
        "trmon.domain.adaptation.calibration.calibrate",
        "domain/adaptation/test_calibration.py::test_a_bound_is_twice_the_larger_quantile",
    ),
    Formula(
        ADAPTATION,
        "target_mask_rate",
        "(1 - r) quantile of the statistic, at most a factor 2 away; held within 10% of r",
        "trmon.domain.adaptation.target_mask_rate.propose",
        "domain/adaptation/test_target_mask_rate.py::test_one_update_of_an_upper_bound",
    ),
    Formula(
        ADAPTATION,
        "bound_budget",
        "delta = max_delta(T, 0.1 gain, D_seq)",
        "trmon.domain.adaptation.target_mask_rate.recommend",
        "domain/adaptation/test_target_mask_rate.py::test_at_4096_tokens_it_asks_for_almost_nothing",
    ),
    Formula(
        ADAPTATION,
        "lr_scale",
        "min(1, sqrt(ess_seq/target)); without the root for SGD",
        "trmon.domain.budget.trainer_advice.lr_scales",
        "domain/budget/test_run_budget.py::test_the_rate_follows_the_effective_sample_size",
    ),
    Formula(
        ADAPTATION,
        "lr_decay",
        "0.5 once for each length_surge beside drift, named by the step that found it",
        "trmon.domain.budget.trainer_advice.lr_decay",
        "domain/budget/test_run_budget.py::test_the_rate_is_cut_once_for_each_surge_beside_drift",
    ),
    Formula(
        ADAPTATION,
        "kl_factor",
        "1 + clip(KL/target - 1, -0.2, 0.2) n/H",
        "trmon.domain.budget.trainer_advice.kl_factor",
        "domain/budget/test_run_budget.py::test_the_kl_coefficient_follows_its_target",
    ),
)

_HEALTH = (
    Formula(
        HEALTH,
        "k3_excess",
        "kl_k3/(10 max(|kl_k1|, 3 sd(d)/sqrt(n), 1e-6))",
        "trmon.domain.signals.run_features.k3_excess",
        "domain/signals/test_run_features.py::test_k3_excess_is_k3_over_ten_times_what_valid_log_probs_can_show",
    ),
    Formula(
        HEALTH,
        "engine_lag",
        "largest number of versions between the trainer's side and mu",
        "bounds.engine_lag",
        "domain/signals/test_run_features.py::test_engine_lag_is_the_number_of_versions_between_the_two_sides",
    ),
    Formula(
        HEALTH,
        "staleness_lag",
        "version_lag - engine_lag",
        "trmon.domain.signals.run_features.staleness_lag",
        "domain/signals/test_run_features.py::test_without_a_staleness_pair_there_is_no_staleness_lag",
    ),
    Formula(
        HEALTH,
        "anti-patterns",
        "by options of the configuration, healthy ranges of signals and the findings that stand",
        "trmon.domain.budget.pipeline_advice.anti_patterns",
        "domain/budget/test_pipeline_advice.py::test_an_anti_pattern_is_told_by_configuration_and_numbers",
    ),
    Formula(
        HEALTH,
        "collapse, known afterwards",
        "EMA of the reward <= 0.7 of its peak for 100 steps; or grad_norm > 10 x its median, then 15% less reward",
        "trmon.domain.analysis.collapse.find_collapse",
        "domain/analysis/test_collapse.py::test_the_reward_fell",
    ),
)

_COLLAPSE = (
    Formula(
        COLLAPSE,
        "fall",
        "(peak - e15)/max(0.3 (peak - r_lo), 0.3 (peak - mean of 20 rows), 8 se, 1e-9 max(1, |peak|))",
        "trmon.domain.findings.memory.RewardMemory",
        "domain/findings/test_memory.py::test_a_change_of_scale_or_origin_changes_nothing",
    ),
    Formula(
        COLLAPSE,
        "onset of a fall",
        "the least-squares split of the rewards from before the peak to the row that found it",
        "trmon.domain.findings.onset.onset_of",
        "domain/findings/test_judge.py::test_a_collapse_begins_where_the_reward_fell_and_not_where_it_was_found",
    ),
)

_BUDGETS = (
    Formula(
        BUDGETS,
        "router_flip_rate",
        "share of (token, layer) whose sets of top-k experts differ",
        "routing.flips",
        "core/test_routing.py::test_flips_are_sets_that_differ",
    ),
    Formula(
        BUDGETS,
        "max_vio",
        "max over layers of (max_i load_i)/(mean load) - 1",
        "routing.max_vio",
        "core/test_routing.py::test_the_violation_is_that_of_the_worst_layer",
    ),
    Formula(
        BUDGETS,
        "95th percentile of token TV",
        "within if max <= l or mean <= l/20; exceeded if mean > 0.95 l + 0.05 max",
        "trmon.domain.budget.run_budget.token_tv_state",
        "domain/budget/test_run_budget.py::test_what_is_proved_is_true_of_every_small_batch",
    ),
    Formula(
        BUDGETS,
        "mismatch budget",
        "token TV at 95% < 1e-4, chi2_seq < 0.1, router_flip_rate < 1e-3 (conjecture)",
        "trmon.domain.budget.run_budget.mismatch_budget",
        "domain/budget/test_run_budget.py::test_each_limit_has_its_state",
    ),
    Formula(
        BUDGETS,
        "lag law",
        "eta << min(R_batch/(S G), R_crit/(T G)); S <= 50 ess_seq (conjectures)",
        "trmon.domain.budget.run_budget.lag_law",
        "domain/budget/test_run_budget.py::test_the_law_has_its_golden_values",
    ),
    Formula(
        BUDGETS,
        "three-policy split",
        "alpha_0, alpha_1 >= max |p - q|; mean TVs; TVs from logits",
        "trmon.domain.budget.run_budget.policy_split",
        "domain/budget/test_run_budget.py::test_the_split_has_bounds_means_and_exact_values",
    ),
    Formula(
        BUDGETS,
        "kinds of off-policyness",
        "present, absent or unknown, by signals and options of the configuration",
        "trmon.domain.budget.off_policy_kinds.off_policy_kinds",
        "domain/budget/test_pipeline_advice.py::test_a_kind_is_told_by_what_was_sent",
    ),
)

OF_RUNS: tuple[Formula, ...] = (*_ADAPTATION, *_HEALTH, *_COLLAPSE, *_BUDGETS)
"""Every formula of sections 8 to 11."""
