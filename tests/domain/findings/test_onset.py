"""Onsets of measures over several rows or signals: the first row that is ill itself, not the one that tripped."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from tests.domain.findings.test_judge import CATALOGUE, Values, folded, healthy, with_values
from trmon.domain.findings.judge import Place, Spell
from trmon.domain.findings.verdict import last_good_of, leader_of

BEGINS = 60


def spell_of(finding: str, before: Values, after: Values, *, noise: str = "", size: float = 0.0) -> Spell:
    """Return the standing spell of a finding in a run whose values change in row 60; `noise` is added to one name."""
    drawn = random.Random(1)
    rows: Sequence[Values] = with_values(healthy(BEGINS), **before) + with_values(healthy(40), **after)
    if noise:
        rows = [{**row, noise: row[noise] + drawn.gauss(0, size)} for row in rows]
    return folded(rows).standing[finding]


BATCH = {"n_tokens": 10_000.0, "n_sequences": 32.0, "n_unlikely": 2000.0}


@pytest.mark.parametrize(
    ("finding", "before", "after"),
    [
        ("engine_mismatch", {**BATCH, "n_prob_diff_half": 2.0}, {**BATCH, "n_prob_diff_half": 60.0}),
        (
            "corrupt_logprobs",
            {**BATCH, "n_zero_tail": 9.0, "n_mu_zero": 9.0, "n_mu_zero_unlikely": 0.0, "n_prob_diff_half": 0.0},
            {**BATCH, "n_zero_tail": 2e3, "n_mu_zero": 2e3, "n_mu_zero_unlikely": 400.0, "n_prob_diff_half": 400.0},
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
    dropped = {**BATCH, "n_mu_zero_unlikely": 200.0, "n_prob_diff_half": 200.0}
    begun = [{**row, **BATCH, "n_mu_zero_unlikely": 0.0, "n_prob_diff_half": 0.0} for row in healthy(BEGINS)]
    late = with_values(healthy(200)[BEGINS:160], **dropped)
    fallen = with_values(healthy(40), reward_mean=0.05, **dropped)
    state = folded([*begun, *late, *fallen])
    leader = leader_of(state, CATALOGUE)
    assert state.standing["reward_collapse"].onset == 160
    assert (leader.finding, leader.onset) == ("corrupt_logprobs", BEGINS)
