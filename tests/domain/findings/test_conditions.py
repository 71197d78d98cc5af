"""Conditions of the table to the letter, and onsets: the first row that is ill itself, not the one that tripped."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

import pytest

from tests.domain.findings.test_judge import CATALOGUE, JUDGE, Values, folded, healthy, with_values
from trmon.domain.findings.judge import Place, Row, Spell
from trmon.domain.findings.verdict import last_good_of, leader_of

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
        # sequences end with as many zeros by chance where most of the others are zeros, too
        ("corrupt_logprobs", False, rows((30, {**TAILS, "n_mu_zero": 9_900.0}))),
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
        # one slope is too small, or they are no two ends of one temperature
        ("temperature", True, rows((30, SLOPES | {"mismatch_logp_slope_q": 0.02}))),
        ("temperature", False, rows((30, SLOPES | {"mismatch_logp_slope_q": 0.0119}))),
        ("temperature", False, rows((30, SLOPES | {"mismatch_logp_slope_q": 0.0201, "mismatch_logp_slope_p": 0.0451}))),
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
        ("version_span", True, rows((20, {"version_span_max": 2.0}))),
        ("version_span", False, rows((9, {"version_span_max": 2.0}), (30, {"version_span_max": 1.0}))),
        ("collapse_risk", True, rows((40, {"collapse_risk": 0.7}))),
        ("collapse_risk", False, rows((40, {"collapse_risk": 0.45}))),
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


def test_a_constant_length_stands_on_while_another_configuration_is_new() -> None:
    cut = [
        {**row, "response_length_mean": 256.0, "loss": 0.01 * place, "grad_norm": 0.3 + 0.01 * place}
        for place, row in enumerate(healthy(55))
    ]
    without_share = [{name: value for name, value in row.items() if name != "length_limit_share"} for row in cut]
    state = folded(without_share[:30])
    for place, values in enumerate(without_share[30:], 30):
        assert "cut_at_limit" in state.standing, place
        state = JUDGE.fold(state, Row(place=Place(1, place), values=values, facts={}, config="1"))


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


BEGINS = 60


def spell_of(finding: str, before: Values, after: Values, *, noise: str = "", size: float = 0.0) -> Spell:
    """Return the standing spell of a finding in a run whose values change in row 60; `noise` is added to one name."""
    drawn = random.Random(1)
    rows: Sequence[Values] = with_values(healthy(BEGINS), **before) + with_values(healthy(40), **after)
    if noise:
        rows = [{**row, noise: row[noise] + drawn.gauss(0, size)} for row in rows]
    return folded(rows).standing[finding]


BATCH_OF_32 = {"n_tokens": 10_000.0, "n_sequences": 32.0, "n_unlikely": 2000.0}


@pytest.mark.parametrize(
    ("finding", "before", "after"),
    [
        ("engine_mismatch", {**BATCH_OF_32, "n_prob_diff_half": 2.0}, {**BATCH_OF_32, "n_prob_diff_half": 60.0}),
        (
            "corrupt_logprobs",
            {**BATCH_OF_32, "n_zero_tail": 9.0, "n_mu_zero": 9.0, "n_mu_zero_unlikely": 0.0, "n_prob_diff_half": 0.0},
            {
                **BATCH_OF_32,
                "n_zero_tail": 2e3,
                "n_mu_zero": 2e3,
                "n_mu_zero_unlikely": 400.0,
                "n_prob_diff_half": 400.0,
            },
        ),
        (
            "no_learning_signal",
            {"advantage_max": 2.0, "advantage_min": -2.0},
            {"advantage_max": 0.0, "advantage_min": 0.0},
        ),
        (
            "corrupt_logprobs",
            {"logp_unit": 1.0, "logp_unit_residual": 0.9},
            {"logp_unit": 0.434, "logp_unit_residual": 0.1},
        ),
        ("collapse_risk", {"collapse_risk": 0.01}, {"collapse_risk": 0.99}),
    ],
)
def test_a_share_or_a_sum_is_ill_from_its_own_row_on(finding: str, before: Values, after: Values) -> None:
    after = {**before, **after}
    rows = with_values(healthy(BEGINS), **before) + with_values(healthy(60), **after)
    spell = folded(rows).standing[finding]
    assert (spell.onset, spell.last_good is None) == (BEGINS, finding == "collapse_risk")


def test_a_mean_off_one_is_ill_from_the_row_that_splits_its_rows_and_from_the_start_if_it_always_was() -> None:
    before, after = {"mismatch_ratio_mean": 1.0}, {"mismatch_ratio_mean": 0.98}
    mended = spell_of("support_shift", before, after, noise="mismatch_ratio_mean", size=0.005)
    assert abs(mended.onset - BEGINS) <= 1
    always = spell_of("support_shift", after, after, noise="mismatch_ratio_mean", size=0.005)
    assert (always.onset, always.last_good) == (0, None)


@pytest.mark.parametrize("slope", [0.2, -0.2])
def test_a_temperature_is_another_from_the_row_of_its_slopes_whatever_their_sign(slope: float) -> None:
    agree = {"logp_slope_q": 0.0, "logp_slope_p": 0.0, "logp_corr_q": 0.0, "ratio_mean": 1.0}
    scaled = agree | {"logp_slope_q": slope, "logp_slope_p": slope, "logp_corr_q": 0.9}
    others = {f"mismatch_{name}": value for name, value in agree.items()}
    spell = spell_of("temperature", others, {f"mismatch_{name}": value for name, value in scaled.items()})
    assert spell.onset == BEGINS


def test_a_sampler_that_no_longer_syncs_is_ill_from_its_last_sync() -> None:
    lags = [*[0.0] * BEGINS, *(float(lag) for lag in range(1, 12))]
    rows = [{**row, "version_lag_mean": lag} for row, lag in zip(healthy(len(lags)), lags, strict=True)]
    spell = folded(rows).standing["stale_rollouts"]
    assert (spell.trip, spell.onset) == (BEGINS + 4, BEGINS - 1)


def test_the_start_of_a_ramp_counts_and_not_the_row_beyond_the_limit() -> None:
    rows = healthy(BEGINS) + [{**row, "entropy": 0.5 * 1.15**n} for n, row in enumerate(healthy(40))]
    spell = folded(rows).standing["entropy_explosion"]
    assert BEGINS <= spell.onset <= BEGINS + 4 < spell.trip
    # Five times the start is the first limit: 0.5 x 1.15^12 is the first value that is more.
    assert spell.beyond == Place(0, BEGINS + 12)


def test_what_jumps_beyond_its_limit_has_no_ramp() -> None:
    rows = healthy(BEGINS) + [{**row, "entropy": 2.5} for row in healthy(40)]
    spell = folded(rows).standing["entropy_explosion"]
    assert BEGINS <= spell.onset <= BEGINS + 4
    assert spell.beyond is None


def test_the_last_good_row_is_before_a_growth_that_a_rising_reward_guards() -> None:
    rows = [
        {**row, "reward_mean": 0.2 + 0.004 * min(n, 60) - 0.01 * max(0, n - 70),
         "entropy": row["entropy"] * min(1.05 ** max(0, n - BEGINS), 4.0)}
        for n, row in enumerate(healthy(BEGINS + 60))
    ]  # fmt: skip
    spell = folded(rows).standing["entropy_explosion"]
    assert spell.onset > BEGINS + 4
    assert BEGINS - 5 <= spell.good <= BEGINS + 1


def test_the_last_good_row_is_the_one_before_a_sudden_change_and_before_a_level() -> None:
    far = spell_of("entropy_explosion", {"entropy": 0.2}, {"entropy": 8.0}, noise="entropy", size=0.01)
    level = spell_of("engine_mismatch", {}, {"mismatch_kl_k3": 0.2}, noise="mismatch_kl_k3", size=1e-5)
    assert [(spell.onset, spell.good, spell.last_good) for spell in (far, level)] == [
        (BEGINS, BEGINS - 1, Place(0, BEGINS - 1))
    ] * 2


@pytest.mark.parametrize(("every", "good"), [(10, 110), (5, 115)])
def test_the_last_good_row_of_a_fall_of_evaluations_is_that_of_an_evaluation(every: int, good: int) -> None:
    rows = [
        {**row, "eval_reward": (0.1 + n / 200 if n < 120 else 0.1) + 0.01 * (n // every % 2)} if n % every == 0 else row
        for n, row in enumerate(healthy(180))
    ]
    spell = folded(rows).standing["reward_decline"]
    assert (spell.clause, spell.onset, spell.good) == ("evaluation", 120, good)


@pytest.mark.parametrize(("after", "good"), [(8, BEGINS - 1), (25, BEGINS + 24)])
def test_the_last_good_row_is_before_all_that_began_within_ten_rows(after: int, good: int) -> None:
    symptom = {"response_length_mean": 100.0, "reward_mean": 0.3}
    state = folded(
        [
            *healthy(BEGINS),
            *with_values(healthy(after), **symptom),
            *with_values(healthy(40), **symptom, mismatch_kl_k3=0.2),
        ]
    )
    illness = state.standing["engine_mismatch"]
    assert (illness.onset, illness.good) == (BEGINS + after, BEGINS + after - 1)
    found = last_good_of(state, illness, CATALOGUE).good
    assert good - 6 <= found <= good


def test_what_is_certain_leads_a_collapse_that_comes_long_after_it() -> None:
    dropped = {**BATCH_OF_32, "n_mu_zero_unlikely": 200.0, "n_prob_diff_half": 200.0}
    begun = [{**row, **BATCH_OF_32, "n_mu_zero_unlikely": 0.0, "n_prob_diff_half": 0.0} for row in healthy(BEGINS)]
    late = with_values(healthy(200)[BEGINS:160], **dropped)
    fallen = with_values(healthy(40), reward_mean=0.05, **dropped)
    state = folded([*begun, *late, *fallen])
    leader = leader_of(state, CATALOGUE)
    assert state.standing["reward_collapse"].onset == 160
    assert (leader.finding, leader.onset) == ("corrupt_logprobs", BEGINS)
