"""The budget of a run: the lag law, its mismatch and its split; and the advice after a step."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from itertools import combinations_with_replacement
from typing import Any

import numpy as np
import pytest

from tests.domain.alerts.alert_builders import ALERT
from tests.domain.budget.test_pipeline_advice import judgement
from tests.store.builders import batch
from trmon.domain.batches.batch import BatchRow
from trmon.domain.budget.run_budget import (
    BudgetState,
    fitted_radii,
    lag_law,
    lag_sentences,
    mismatch_budget,
    policy_split,
    token_tv_state,
)
from trmon.domain.budget.trainer_advice import KlTarget, advise, ess_target, kl_factor, lr_decay, lr_scales
from trmon.domain.collapse_risk.risk_model import shipped_model
from trmon.domain.collapse_risk.risk_reading import RiskLevel
from trmon.domain.findings.judge import Evidence, Place, Spell
from trmon.domain.identity import BatchKey
from trmon.domain.severity import Severity
from trmon_client.api.budget import AdviceInfo, LrDecayInfo

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


def test_a_lag_that_a_finding_says_harms_is_told_before_what_it_would_allow() -> None:
    law = lag_law(lag=4, horizon=1000, lr=1e-6, ess_seq=0.5, **RADII)
    first, *rest = lag_sentences(law, stale=judgement("stale_rollouts").findings[0])
    assert first == "This run's lag harms it: stale rollouts since step 30. Lower it before anything below."
    assert rest == list(lag_sentences(law))


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


VALUES = (0.0, 0.5, 1.0, 2.0, 40.0)
"""Multiples of a limit of 1."""


def test_what_is_proved_is_true_of_every_small_batch() -> None:
    """Every multiset of 20 tokens with these TVs, by the interpolated percentile and by the 19th smallest value."""
    seen = set()
    for tvs in combinations_with_replacement(VALUES, 20):
        state = token_tv_state(mean=sum(tvs) / 20, largest=tvs[-1], limit=1.0)
        seen.add(state)
        if state is BudgetState.WITHIN:
            assert max(tvs[18], np.percentile(tvs, 95)) <= 1.0
        if state is BudgetState.EXCEEDED:
            assert min(tvs[18], np.percentile(tvs, 95)) > 1.0
    assert seen == {BudgetState.WITHIN, BudgetState.EXCEEDED, BudgetState.UNDECIDED}


@pytest.mark.parametrize(
    ("mean", "largest", "state"),
    [
        (math.nan, math.nan, BudgetState.NOT_MEASURED),
        (math.nan, 1e-4, BudgetState.WITHIN),
        (math.nan, 1e-2, BudgetState.UNDECIDED),
        (5e-6, 0.9, BudgetState.WITHIN),
        (5.1e-6, 0.9, BudgetState.UNDECIDED),
        (0.06, 1.0, BudgetState.EXCEEDED),
        (0.06, math.nan, BudgetState.EXCEEDED),
    ],
)
def test_the_percentile_is_judged_as_far_as_it_is_proved(mean: float, largest: float, state: BudgetState) -> None:
    assert token_tv_state(mean=mean, largest=largest) is state


@pytest.mark.parametrize(
    ("signals", "states"),
    [
        ({}, ("not_measured", "not_measured", "not_measured")),
        ({"mismatch_chi2_seq_log1p": np.log1p(0.09), "router_flip_rate": 0.0009}, ("not_measured", "within", "within")),
        (
            {"mismatch_chi2_seq_log1p": 0.11, "router_flip_rate": 1e-3},
            ("not_measured", "exceeded", "exceeded"),
        ),
        ({"total_chi2_seq_log1p": np.log1p(0.11), "tv_max": 5e-5}, ("within", "exceeded", "not_measured")),
    ],
)
def test_each_limit_has_its_state(signals: dict[str, float], states: tuple[str, ...]) -> None:
    assert tuple(item.state for item in mismatch_budget(signals)) == states


def test_chi2_over_both_drifts_says_so() -> None:
    item = mismatch_budget({"total_chi2_seq_log1p": 0.2})[1]
    assert (item.signal, item.value) == ("total_chi2_seq", pytest.approx(math.expm1(0.2)))
    assert "both drifts" in item.note


SAMPLED = {"staleness_prob_diff_max": 0.1, "mismatch_prob_diff_max": 0.3, "staleness_tv_is": 0.01, "mismatch_tv": 0.02}


def test_the_split_has_bounds_means_and_exact_values() -> None:
    found = policy_split(SAMPLED | {"tv_max": 0.4, "tv_mean": 0.03}, is_replayed=True)
    assert (found.alpha_0, found.alpha_1, found.mismatch_share) == (0.1, 0.3, 0.3 / 0.4)
    assert (found.mean_staleness, found.mean_mismatch, found.exact_max, found.exact_mean) == (0.01, 0.02, 0.4, 0.03)
    assert found.is_replayed


def test_with_the_logits_of_all_three_the_split_is_exact_and_says_so() -> None:
    exact = {
        f"{gap}_exact_tv_{stem}": x for gap, x in (("staleness", 0.2), ("mismatch", 0.6)) for stem in ("max", "mean")
    }
    found = policy_split(SAMPLED | exact, is_replayed=False)
    assert (found.alpha_0, found.alpha_1, found.mean_staleness, found.mean_mismatch) == (0.2, 0.6, 0.2, 0.6)
    assert found.note.startswith("Exact at the sampled positions")


def test_where_the_mismatch_pair_holds_staleness_the_split_is_unknown_and_says_why() -> None:
    found = policy_split(SAMPLED | {"engine_lag": 1.0}, is_replayed=False)
    unknown = (found.alpha_0, found.alpha_1, found.mismatch_share, found.mean_staleness, found.mean_mismatch)
    assert all(math.isnan(value) for value in unknown)
    assert found.note.endswith("the mismatch pair holds staleness too.")
    assert not policy_split(SAMPLED | {"engine_lag": 0.0}, is_replayed=False).note


def test_what_was_not_sent_is_nan() -> None:
    found = policy_split({"mismatch_prob_diff_max": 0.3}, is_replayed=False)
    assert found.alpha_1 == 0.3
    assert all(math.isnan(value) for value in (found.alpha_0, found.mismatch_share, found.exact_max, found.exact_mean))


CUT = LrDecayInfo(factor=0.5, step=200)


def row(step: int = 300, *, ess_seq: float = 0.8, **changed: Any) -> BatchRow:
    """Return a gauge row of the total pair."""
    usual = {"n_sequences": 512, "signals": {"total_ess_seq": ess_seq, "mismatch_ess_seq": 1.0}}
    return batch(BatchKey(1, step, None), run_id=1, ordinal=step + 1, **usual | changed)


@pytest.mark.parametrize(
    ("ess_seq", "target", "adam", "sgd"),
    [
        pytest.param(0.2, 0.8, 0.5, 0.25, id="a quarter of the target: half for Adam, a quarter for SGD"),
        pytest.param(0.8, 0.8, 1.0, 1.0, id="at the target"),
        pytest.param(1.0, 0.8, 1.0, 1.0, id="above it the rate is never raised"),
        pytest.param(math.nan, 0.8, 1.0, 1.0, id="unknown"),
        pytest.param(0.2, math.nan, 1.0, 1.0, id="no target yet"),
        pytest.param(0.2, 0.0, 1.0, 1.0, id="a target of nothing"),
    ],
)
def test_the_rate_follows_the_effective_sample_size(ess_seq: float, target: float, adam: float, sgd: float) -> None:
    assert lr_scales(ess_seq, target=target) == pytest.approx((adam, sgd))


def early(*values: float, lag: float | None = None) -> list[BatchRow]:
    lags = {} if lag is None else {"version_lag_mean": lag}
    return [row(step, signals={"total_ess_seq": value, **lags}) for step, value in enumerate(values)]


@pytest.mark.parametrize(
    ("rows", "target"),
    [
        pytest.param(early(0.1, 0.5, 0.6, 0.7, 0.9), 0.6, id="the median of the first"),
        pytest.param(early(0.1, 0.2, 0.3, lag=2) + early(*[0.9] * 5, lag=0), 0.9, id="of those on-policy"),
        pytest.param(early(0.1, 0.2, 0.3, 0.4, 0.5, lag=2), 0.3, id="of all, where the trainer is never on-policy"),
        pytest.param(early(0.5, 0.5, math.nan, 0.5, 0.5), math.nan, id="four are too few"),
        pytest.param([], math.nan, id="none"),
    ],
)
def test_the_target_is_the_level_of_the_first_steps(rows: list[BatchRow], target: float) -> None:
    assert ess_target(rows) == pytest.approx(target, nan_ok=True)


def surge(found: int, *drifts: str) -> Spell:
    """Return the finding that responses surge, found at a step, with what else grew."""
    measures = ("response_length.growth", "response_length.growth_errors", *drifts)
    evidence = tuple(Evidence(measure=name, signal="x", value=3.0, side=">", limit=2.0) for name in measures)
    place = Place(1, found)
    return Spell(
        finding="length_surge", clause="beside_drift", trip=found, trip_place=place, onset=found, onset_place=place,
        good=None, last_good=None, from_start=False, severity=Severity.WARN, evidence=evidence,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("found", "step", "last", "expected"),
    [
        pytest.param(surge(200, "kl_k3.growth"), 200, None, CUT, id="a surge beside drift cuts the rate in half"),
        pytest.param(surge(200), 200, None, None, id="longer responses alone do not"),
        pytest.param(surge(200, "length_limit_share.rise"), 200, None, None, id="nor do responses that are cut off"),
        pytest.param(None, 200, None, None, id="without a surge the rate stays"),
        pytest.param(surge(200, "kl_k3.growth"), 900, CUT, CUT, id="never again for the same finding"),
        pytest.param(surge(200, "kl_k3.growth"), 310, None, CUT, id="after a restart it is the same cut"),
        pytest.param(surge(280, "kl_k3.growth"), 280, CUT, LrDecayInfo(factor=0.5, step=280), id="for a new finding"),
        pytest.param(None, 900, CUT, CUT, id="earlier advice stays"),
        pytest.param(None, 150, CUT, None, id="a run that went back drops it"),
    ],
)
def test_the_rate_is_cut_once_for_each_surge_beside_drift(
    found: Spell | None, step: int, last: LrDecayInfo | None, expected: LrDecayInfo | None
) -> None:
    assert lr_decay(found, step=step, last=last) == expected


@pytest.mark.parametrize(
    ("kl", "factor"),
    [
        pytest.param(6.0, 1.0, id="at the target"),
        pytest.param(6.6, 1.01, id="a tenth above it"),
        pytest.param(60.0, 1.02, id="far above it, a fifth counts"),
        pytest.param(0.0, 0.98, id="far below it, a fifth counts"),
        pytest.param(math.inf, 1.02, id="infinite"),
        pytest.param(math.nan, 1.0, id="unknown"),
    ],
)
def test_the_kl_coefficient_follows_its_target(kl: float, factor: float) -> None:
    assert kl_factor(kl, target=6.0, n_sequences=1000, horizon=10_000.0) == pytest.approx(factor)


def test_a_batch_beyond_the_horizon_never_makes_the_penalty_negative() -> None:
    assert kl_factor(0.0, target=6.0, n_sequences=100_000, horizon=10_000.0) == 0.0


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({}, None),
        ({"kl_target": 6}, KlTarget(nats=6.0)),
        ({"kl_target": 6.0, "kl_horizon": 512}, KlTarget(nats=6.0, horizon=512.0)),
        ({"kl_target": "6"}, None),
        ({"kl_target": 0}, None),
        ({"kl_target": True}, None),
        ({"kl_target": math.nan}, None),
        ({"kl_target": 6.0, "kl_horizon": -1}, None),
        ({"kl_target": 10**400}, None),
    ],
    ids=lambda value: str(value)[:40],
)
def test_the_target_is_in_the_runs_configuration(config: dict[str, Any], expected: KlTarget | None) -> None:
    assert KlTarget.of(config) == expected


CORRUPT = replace(ALERT, rule="corrupt_logprobs", step=299, summary="log-probs look corrupt")


def test_a_healthy_run_gets_neutral_advice() -> None:
    advice = advise(row(), target=0.8, decay=None, kl_target=KlTarget(nats=6.0), alerts=())
    assert (advice.lr_scale, advice.lr_decay, advice.kl_factor, advice.stop) == (1.0, None, None, False)
    assert advice.reasons == {}


def test_all_advice_has_a_reason() -> None:
    sick = row(ess_seq=0.2, scalars={"ref_kl": 60.0})
    advice = advise(sick, target=0.8, decay=CUT, kl_target=KlTarget(nats=6.0), alerts=(CORRUPT,))
    assert (advice.step, advice.lr_scale, advice.lr_scale_sgd, advice.stop) == (300, 0.5, 0.25, True)
    assert advice.kl_factor == pytest.approx(1 + 0.2 * 512 / 10_000)
    assert advice.reasons.keys() == {"lr_scale", "lr_decay", "kl_factor", "stop"}
    assert advice.reasons["stop"] == "log-probs look corrupt"


def test_advice_survives_a_round_trip_through_json() -> None:
    advice = advise(row(ess_seq=math.nan), target=math.nan, decay=CUT, kl_target=None, alerts=())
    document = advice.document()
    assert json.loads(json.dumps(document, allow_nan=False)) == document
    assert document["lr_decay"] == {"factor": 0.5, "step": 200}


def test_an_open_incident_is_named_by_its_step_and_advises_nothing_else() -> None:
    advice = advise(row(), target=0.8, decay=None, kl_target=None, alerts=(), incident=CORRUPT)
    assert (advice.incident_since, advice.stop, advice.lr_scale) == (299, False, 1.0)
    assert advice.reasons == {"incident_since": "log-probs look corrupt"}


MODEL = shipped_model().file


def at_risk(probability: float, *, has_collapsed: bool = False) -> AdviceInfo:
    """Return the advice at a risk that the gradient drives."""
    signals = {"collapse_risk": probability, "collapse_risk:grad_norm": 1.0, "total_ess_seq": 0.8}
    return advise(row(signals=signals), target=0.8, decay=None, kl_target=None, alerts=(), has_collapsed=has_collapsed)


def test_a_high_risk_is_a_recommendation_that_nothing_applies() -> None:
    probability = (1.0 + MODEL.page_at) / 2
    advice = at_risk(probability)
    risk = advice.collapse_risk
    assert (risk.probability, risk.level, risk.lr_scale) == (probability, RiskLevel.PAGE.value, 0.5)
    assert (advice.lr_scale, advice.lr_scale_sgd, advice.lr_decay) == (1.0, 1.0, None)
    assert (advice.stop, advice.should_stop) == (False, False)
    assert (
        "(not calibrated for your trainer), driven by gradient norm: keep a checkpoint and halve the learning rate"
        in advice.reasons["collapse_risk"]
    )
    assert json.loads(json.dumps(advice.document()))["collapse_risk"]["lr_scale"] == 0.5


def test_a_low_risk_asks_for_nothing_and_none_is_none() -> None:
    low = at_risk(MODEL.warn_at / 2)
    assert (low.collapse_risk.lr_scale, low.reasons) == (1.0, {})
    assert at_risk(math.nan).collapse_risk is None


def test_once_the_reward_has_collapsed_no_risk_is_advised() -> None:
    assert at_risk(0.99, has_collapsed=True).collapse_risk is None
