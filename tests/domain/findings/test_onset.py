"""Onsets of measures over several rows or signals: the first row that is ill itself, not the one that tripped."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from tests.domain.findings.test_judge import CATALOGUE, Values, folded, healthy, with_values
from trmon.domain.findings.judge import Spell
from trmon.domain.findings.verdict import leader_of

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
        ("collapse_risk", {"collapse_risk": 0.01, "collapse_risk_outside": 0.0}, {"collapse_risk": 0.99}),
    ],
)
def test_a_share_or_a_sum_is_ill_from_its_own_row_on(finding: str, before: Values, after: Values) -> None:
    after = {**before, **after}
    rows = with_values(healthy(BEGINS), **before) + with_values(healthy(60), **after)
    spell = folded(rows).standing[finding]
    assert (spell.onset, spell.last_good is None) == (BEGINS, False)


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


def test_what_is_certain_leads_a_collapse_that_comes_long_after_it() -> None:
    dropped = {**BATCH, "n_mu_zero_unlikely": 200.0, "n_prob_diff_half": 200.0}
    begun = [{**row, **BATCH, "n_mu_zero_unlikely": 0.0, "n_prob_diff_half": 0.0} for row in healthy(BEGINS)]
    late = with_values(healthy(200)[BEGINS:160], **dropped)
    fallen = with_values(healthy(40), reward_mean=0.05, **dropped)
    state = folded([*begun, *late, *fallen])
    leader = leader_of(state, CATALOGUE)
    assert state.standing["reward_collapse"].onset == 160
    assert leader is not None
    assert (leader.finding, leader.onset) == ("corrupt_logprobs", BEGINS)
