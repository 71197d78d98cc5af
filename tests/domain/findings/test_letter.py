"""Conditions of the table to the letter: what a row needs besides its limit, and what it does not."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest

from tests.domain.findings.test_judge import CATALOGUE, Values, folded, healthy, with_values
from trmon.domain.findings.verdict import leader_of

ENGINES = ("mismatch_kl_k3", "mismatch_prob_pearson")
BATCH = {"n_tokens": 10_000.0, "n_sequences": 64.0, "n_unlikely": 2_000.0, "n_prob_diff_half": 2.0}
TAILS = {**BATCH, "n_zero_tail": 2_000.0, "n_mu_zero": 2_001.0, "n_mu_zero_unlikely": 1.0}
NO_ZEROS, ZEROS = {**BATCH, "n_mu_zero_unlikely": 0.0}, {**BATCH, "n_mu_zero_unlikely": 60.0, "n_prob_diff_half": 60.0}
DISPLACED = {"mismatch_prob_pearson": 0.1, "mismatch_abs_log_ratio_mean": 0.8, "seq_shift_share": 0.01}
DEAD, SPIKE, AT_TOP = {"grad_norm": 0.0}, {"grad_norm": 6.0}, {"reward_mean": 0.97}
SLOPES = {"mismatch_logp_corr_q": 0.5, "mismatch_ratio_mean": 1.0, "mismatch_logp_slope_p": 0.02}
EQUAL = {"zero_variance_groups": 0.97}


def rows(*parts: tuple[int, Values], without: Sequence[str] = ()) -> list[Values]:
    """Return healthy rows with the values of each part, without some names."""
    whole = healthy(sum(n for n, _ in parts))
    values = [given for n, given in parts for _ in range(n)]
    return [
        {name: value for name, value in {**row, **given}.items() if name not in without}
        for row, given in zip(whole, values, strict=True)
    ]


def lengths(size: float, n: int) -> list[tuple[int, Values]]:
    """Return parts of one row each, whose mean length is 0 or a size in turn."""
    return [(1, {"response_length_mean": size * (place % 2), "reward_mean": 0.4}) for place in range(n)]


@pytest.mark.parametrize(
    ("finding", "stands", "given"),
    [
        ("not_a_number", True, rows((20, {}), (1, {"reward_mean": math.nan, "invalid_fraction": 1e-4}))),
        # zeros at the end, of which too few are unlikely: padding
        ("corrupt_logprobs", True, rows((30, TAILS))),
        ("corrupt_logprobs", False, rows((20, NO_ZEROS), (3, ZEROS))),
        ("corrupt_logprobs", True, rows((20, NO_ZEROS), (4, ZEROS))),
        # 3 standard errors of kl_k1 are more than a tenth of the mean absolute log-ratio
        (
            "corrupt_logprobs",
            True,
            rows((9, DISPLACED | {"mismatch_kl_k1": 0.15, "mismatch_kl_k2": 4, "n_tokens": 2e3})),
        ),
        (
            "corrupt_logprobs",
            False,
            rows((9, DISPLACED | {"mismatch_kl_k1": 0.15, "mismatch_kl_k2": 4, "n_tokens": 2e4})),
        ),
        (
            "wrong_policy",
            False,
            rows((9, {"mismatch_abs_log_ratio_mean": 1.5, "mismatch_ppl_ratio": 1.0}), without=ENGINES),
        ),
        ("support_shift", False, rows((40, {"mismatch_ratio_mean": 0.98}), without=ENGINES)),
        ("stale_rollouts", False, rows((9, {"mismatch_abs_log_ratio_mean": 0.6, "engine_lag": 2.0}))),
        ("stale_rollouts", False, rows(*((1, {"engine_lag": 0.1 * lag}) for lag in range(20)))),
        (
            "temperature",
            True,
            [
                *rows((25, {"mismatch_logp_slope_q": -0.5})),
                *rows((30, SLOPES | {"mismatch_logp_slope_q": 0.02})),
            ],
        ),
        # past 0: flips that are over
        (
            "moe_routing",
            False,
            rows((20, {"router_flip_rate": 0.0}), (9, {"router_flip_rate": 0.01}), (12, {"router_flip_rate": 0.0}))
            + rows((9, {"router_flip_rate": 0.0, "mismatch_kl_k3": 0.3})),
        ),
        # the harm follows the spikes
        ("step_too_large", True, rows((100, {}), *[(1, SPIKE), (2, {})] * 3, (10, {"reward_mean": 0.0}))),
        ("step_too_large", False, rows((100, {}), *[(1, SPIKE), (2, {})] * 3, (10, {}))),
        ("gradient_spike", True, rows((40, {}), (70, DEAD), (1, SPIKE))),
        ("no_learning_signal", False, rows((3, {}), (44, DEAD))),
        ("no_learning_signal", True, rows((3, {}), (45, DEAD))),
        # a logged minimum below 0: the top of the rewards is unknown
        ("solved", False, rows((30, AT_TOP | EQUAL | {"reward_min": -1.0}))),
        ("solved", True, rows((30, AT_TOP | EQUAL))),
        ("entropy_collapse", False, rows((30, {}), (60, AT_TOP | {"entropy": 0.004}))),
        ("entropy_collapse", True, rows((30, {}), (60, {"reward_mean": 0.4, "entropy": 0.004}))),
        ("length_collapse", False, rows(*lengths(600.0, 20), *lengths(240.0, 40))),
        (
            "variance_blowup",
            False,
            rows(
                (30, {"n_sequences": 16.0, "mismatch_drift_spread": 0.01, "mismatch_kl_k3": 0.02}),
                (30, {"n_sequences": 16.0, "mismatch_drift_spread": 0.1, "mismatch_kl_k3": 0.02}),
            ),
        ),
        ("duplicate_prompts", True, rows((20, {"distinct_prompt_share": 0.25}), (5, {"distinct_prompt_share": 0.1}))),
        ("duplicate_prompts", False, rows((20, {"distinct_prompt_share": 0.25}), (9, {"distinct_prompt_share": 0.13}))),
        ("slow_steps", True, rows((20, {"step_seconds": 10.0}), (5, {"step_seconds": 40.0}))),
        ("slow_steps", False, rows((20, {"step_seconds": 0.05}), (60, {"step_seconds": 0.9}))),
    ],
)
def test_a_finding_stands_by_all_of_its_condition(finding: str, stands: bool, given: list[Values]) -> None:
    assert (finding in folded(given).standing) is stands


def test_the_top_is_that_of_most_rewards_and_not_of_one() -> None:
    quantiles = {f"reward_{name}": 0.0 for name in ("min", "q01", "q05", "q25")}
    quantiles |= {f"reward_{name}": 2.0 for name in ("median", "q75", "q95", "q99", "max")}
    learns = with_values(healthy(300), **quantiles)
    learns[0] = {**learns[0], "reward_max": 10.0}
    state = folded([*learns, *with_values(healthy(30), **quantiles, reward_mean=1.95, **EQUAL)])
    assert "solved" in state.standing


def test_a_reward_that_rose_in_an_earlier_attempt_does_not_rise_in_this_one() -> None:
    rose = [{**row, "reward_mean": 0.2 + 0.005 * place, "reference_kl": 0.1} for place, row in enumerate(healthy(100))]
    flat = [
        {
            **row,
            "reward_mean": 0.69 + 0.01 * (place % 2),
            "response_length_mean": 300 * 1.02**place,
            "reference_kl": 0.4,
        }
        for place, row in enumerate(healthy(60))
    ]
    assert "length_surge" in folded(flat, attempt=1, state=folded(rose)).standing


def test_a_guarded_level_begins_after_the_last_row_in_which_its_guard_held() -> None:
    rises = [{**row, "reward_mean": 0.2 + 0.005 * place} for place, row in enumerate(healthy(100))]
    low = [{**row, "entropy": 0.5 if place < 40 else 0.004} for place, row in enumerate(rises)]
    state = folded([*low, *with_values(healthy(150), reward_mean=0.69, entropy=0.004)])
    assert state.standing["entropy_collapse"].onset >= 100


def test_what_is_ill_from_the_first_row_leads_before_a_later_cause_only_in_place_of_a_large_step() -> None:
    stuck = with_values(healthy(29), reward_std=0.0)
    cut = [{**row, "length_limit_share": 0.1 if place < 6 else 0.9} for place, row in enumerate(stuck)]
    leaders = [leader_of(folded(rows), CATALOGUE) for rows in (cut, with_values(cut, grad_norm=2e4))]
    assert [leader and leader.finding for leader in leaders] == ["cut_at_limit", "no_learning_signal"]


def test_a_surge_at_the_top_of_the_reward_begins_within_the_run() -> None:
    rows = [
        {**row, "reward_mean": 0.97, "response_length_mean": 300 * 1.02**place, "reference_kl": 0.1 * 1.03**place}
        for place, row in enumerate(healthy(60))
    ]
    spell = folded(rows).standing["length_surge"]
    assert spell.onset <= spell.trip
