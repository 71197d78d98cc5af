"""The formulas of the routing of experts, and of reports on a run."""

from __future__ import annotations

from .formula import BOUNDS, REPORTS, ROUTING, Formula

_ROUTING = (
    Formula(
        ROUTING,
        "router_flip_rate",
        "share of (token, layer) whose sets of top-k experts differ",
        "routing.router_flips.flips",
        "core/routing/test_router_flips.py::test_flips_are_sets_that_differ",
    ),
    Formula(
        ROUTING,
        "max_vio",
        "max over layers of (max_i load_i)/(mean load) - 1",
        "routing.expert_load.max_vio",
        "core/routing/test_expert_load.py::test_the_violation_is_that_of_the_worst_layer",
    ),
)

_PATTERNS = "domain/advice/test_anti_patterns.py::test_an_anti_pattern_is_told_by_configuration_and_numbers"

_REPORTS = (
    Formula(
        BOUNDS,
        "minorizer",
        "L - adaptive of the sequences in the loss, with the weights M of a soft policy",
        "bounds.minorizer.minorizer",
        "core/bounds/test_minorizer.py::test_the_weighted_gain_of_every_small_policy_is_at_least_the_minorizer",
    ),
    Formula(
        REPORTS,
        "95th percentile of token TV",
        "within if max <= l or mean <= l/20; exceeded if mean > 0.95 l + 0.05 max",
        "trmon.domain.budget.mismatch_budget.token_tv_state",
        "domain/budget/test_mismatch_budget.py::test_what_is_proved_is_true_of_every_small_batch",
    ),
    Formula(
        REPORTS,
        "mismatch budget",
        "token TV at 95% < 1e-4, chi2_seq < 0.1, router_flip_rate < 1e-3 (conjecture)",
        "trmon.domain.budget.mismatch_budget.mismatch_budget",
        "domain/budget/test_mismatch_budget.py::test_each_limit_has_its_state",
    ),
    Formula(
        REPORTS,
        "lag law",
        "eta << min(R_batch/(S G), R_crit/(T G)); S <= 50 ess_seq (conjectures)",
        "trmon.domain.budget.lag_law.lag_law",
        "domain/budget/test_lag_law.py::test_the_law_has_its_golden_values",
    ),
    Formula(
        REPORTS,
        "three-policy split",
        "alpha_0, alpha_1 >= max |p - q|; mean TVs; TVs from logits",
        "trmon.domain.budget.policy_split.policy_split",
        "domain/budget/test_policy_split.py::test_the_split_has_bounds_means_and_exact_values",
    ),
    Formula(
        REPORTS,
        "kinds of off-policyness",
        "present, absent or unknown, by signals and options of the configuration",
        "trmon.domain.budget.off_policy_kinds.off_policy_kinds",
        "domain/budget/test_off_policy_kinds.py::test_a_kind_is_told_by_what_was_sent",
    ),
    Formula(
        REPORTS,
        "anti-patterns",
        "by options of the configuration and signals at the limits of the findings",
        "trmon.domain.advice.anti_patterns.anti_patterns",
        _PATTERNS,
    ),
)

OF_REPORTS: tuple[Formula, ...] = (*_ROUTING, *_REPORTS)
"""Routing, the minorizer, and the parts of a budget."""
