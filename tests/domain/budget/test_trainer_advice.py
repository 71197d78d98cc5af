"""The advice after a step."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import pytest

from tests.domain.alerts.alert_builders import ALERT
from tests.store.builders import batch
from trmon.domain.batches.batch import BatchRow
from trmon.domain.budget.trainer_advice import (
    KlTarget,
    advise,
    ess_target,
    kl_factor,
    lr_decay,
    lr_scales,
)
from trmon.domain.collapse_risk.risk_model import shipped_model
from trmon.domain.collapse_risk.risk_reading import RiskLevel
from trmon.domain.findings.judge import Evidence, Place, Spell
from trmon.domain.identity import BatchKey
from trmon.domain.severity import Severity
from trmon_client.api.budget import AdviceInfo, LrDecayInfo

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
