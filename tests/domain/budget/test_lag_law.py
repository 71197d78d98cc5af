"""The lag law: golden values, what stays unknown without the radii, and what is said of it."""

from __future__ import annotations

import math

import pytest

from trmon.domain.budget.run_budget import fitted_radii, lag_law, lag_sentences

RADII = {"update_norm": 2.0, "r_batch": 0.01, "r_crit": 0.4}


def test_the_law_has_its_golden_values() -> None:
    law = lag_law(lag=4, horizon=1000, lr=1e-6, ess_seq=0.5, **RADII)
    assert (law.s_eta, law.t_eta, law.ess_ceiling) == pytest.approx((4e-6, 1e-3, 25.0))
    assert law.lr_scale == pytest.approx(min(0.01 / (4 * 2), 0.4 / (1000 * 2)))  # the horizon binds: 2e-4
    assert law.lag_scale == pytest.approx(0.01 / (1e-6 * 2))
    longer = lag_law(lag=400, horizon=1000, lr=1e-6, ess_seq=0.5, **RADII)
    assert longer.lr_scale == pytest.approx(0.01 / (400 * 2))  # the lag binds: 1.25e-5


@pytest.mark.parametrize("missing", RADII)
def test_without_a_radius_or_a_norm_there_is_no_scale(missing: str) -> None:
    law = lag_law(lag=4, horizon=1000, lr=1e-6, ess_seq=0.5, **{name: RADII[name] for name in RADII if name != missing})
    assert math.isnan(law.lr_scale)
    words = " ".join(lag_sentences(law))
    assert "S eta is 4e-06 and T eta is 0.001" in words
    assert "allows learning rates" not in words


def test_a_lag_of_zero_leaves_the_horizon() -> None:
    assert lag_law(lag=0, horizon=1000, lr=1e-6, ess_seq=1.0, **RADII).lr_scale == pytest.approx(2e-4)


def test_every_sentence_of_a_bound_says_that_it_is_a_conjecture() -> None:
    words = list(lag_sentences(lag_law(lag=40, horizon=1000, lr=1e-6, ess_seq=0.5, **RADII)))
    assert words == [
        "A lag of 40 allows learning rates well below 0.000125 (conjecture); this run has 1e-06.",
        "This learning rate allows lags well below 5e+03 versions (conjecture).",
        "The lag of 40 is above the conjectured ceiling of 50 ess_seq, 25.",
    ]


def test_what_was_not_sent_is_named() -> None:
    law = lag_law(lag=math.nan, horizon=10, lr=math.nan, ess_seq=math.nan)
    assert [sentence.split(":")[0] for sentence in lag_sentences(law)] == [
        "The lag was not measured",
        "The ceiling of the lag, 50 ess_seq (conjecture), needs log-probs of two policies.",
    ]
    assert "scalar lr" in next(lag_sentences(lag_law(lag=1, horizon=10, lr=math.nan, ess_seq=1.0)))
    *_, ceiling = lag_sentences(lag_law(lag=math.nan, horizon=10, lr=1.0, ess_seq=0.1))
    assert ceiling.startswith("A lag pays up to")


def test_radii_are_options_of_the_configuration() -> None:
    assert fitted_radii({"lag_law": {"r_batch": "0.01", "r_crit": 0.4, "update_norm": 2}}) == RADII
    found = fitted_radii({"lag_law.r_batch": -1, "lag_law.r_crit": "none"})
    assert all(math.isnan(value) for value in found.values())
