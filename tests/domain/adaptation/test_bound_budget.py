"""What an error bound asks of the threshold: recommended, with what it would mask."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tests.domain.adaptation import stream
from trmon.domain.adaptation.proposal import BoundProposal, NoChange, NoChangeReason, PolicySample
from trmon.domain.adaptation.target_mask_rate import recommend
from trmon_client.core.bounds import max_delta
from trmon_client.core.policies.policy import preset
from trmon_client.core.policies.presets import CERTIFICATE_MARGIN

POLICY = preset("trm_max")


def sample(n: int = 512, *, tokens: int = 4096) -> PolicySample:
    columns = stream.batch(np.random.default_rng(0), n=n)
    columns.by_name["n_tokens"] = np.full(n, tokens)
    return PolicySample.of(columns, POLICY)


def test_at_4096_tokens_it_asks_for_almost_nothing() -> None:
    verdict = recommend(sample(), policy=POLICY, gain=0.5, fraction=0.5)
    assert isinstance(verdict, BoundProposal)
    delta = max_delta(horizon=4096, budget=0.25)
    assert delta < 1e-6
    uppers = {(c.statistic, c.where): c.upper for c in verdict.policy.criteria}
    assert uppers["max_kl", "kl_exact"] == pytest.approx(delta)
    assert uppers["max_binary_kl", "kl_not_exact"] == pytest.approx(delta + CERTIFICATE_MARGIN)
    assert uppers["max_abs_d", "kl_not_exact"] == 0.5
    assert verdict.basis == {"gain": 0.5, "horizon": 4096, "delta": pytest.approx(delta)}
    assert verdict.mask_rate_after >= verdict.mask_rate_before


@pytest.mark.parametrize(
    ("gain", "reason"),
    [
        pytest.param(0.0, NoChangeReason.NO_GAIN, id="nothing won, no budget"),
        pytest.param(-0.2, NoChangeReason.NO_GAIN, id="a loss"),
        pytest.param(math.nan, NoChangeReason.NO_GAIN, id="no rewards"),
    ],
)
def test_without_a_gain_there_is_no_budget(gain: float, reason: NoChangeReason) -> None:
    verdict = recommend(sample(), policy=POLICY, gain=gain)
    assert isinstance(verdict, NoChange)
    assert verdict.reason is reason


def test_too_few_sequences_hold() -> None:
    verdict = recommend(sample(255), policy=POLICY, gain=0.5)
    assert isinstance(verdict, NoChange)
    assert verdict.reason is NoChangeReason.TOO_FEW


def test_a_policy_that_does_not_bound_token_kl_is_left_alone() -> None:
    verdict = recommend(stream.sample(stream.GEO), policy=stream.GEO, gain=0.5)
    assert isinstance(verdict, NoChange)
    assert verdict.reason is NoChangeReason.NOTHING_TO_MOVE
