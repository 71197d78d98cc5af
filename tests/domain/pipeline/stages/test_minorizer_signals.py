"""The minorizer of a batch as signals: only of runs that declare their advantages and send logits."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from trmon.domain.pipeline.replay import minorizer_signals
from trmon_client.core import divergence, statistics
from trmon_client.core.bounds import minorizer
from trmon_client.core.columns import Columns
from trmon_client.core.divergence.divergence_columns import with_divergences

DECLARED: dict[str, Any] = {"advantages_centred": True}
ACCEPTED = np.array([True, True, False])


def of_logits(*, exact: bool = True) -> Columns:
    rng = np.random.default_rng(0)
    a = rng.normal(size=(3, 4, 5))
    b = a + 1e-3 * rng.normal(size=a.shape)
    tokens, mask = rng.integers(0, 5, (3, 4, 1)), np.ones((3, 4), bool)
    mu, pi = (np.take_along_axis(x - np.log(np.exp(x).sum(-1, keepdims=True)), tokens, -1)[..., 0] for x in (a, b))
    columns = statistics.columns(rollout_logprobs=mu, logprobs=pi, mask=mask, advantages=[0.2, -0.1, -0.1])
    return with_divergences(columns, divergence.exact(rollout_logits=a, logits=b, mask=mask)) if exact else columns


def test_a_run_that_declares_centred_advantages_has_a_minorizer() -> None:
    found = minorizer_signals(of_logits(), ACCEPTED, config=DECLARED | {"reward_range": 2})
    expected = minorizer(of_logits(), accepted=ACCEPTED, centred=True, reward_range=2.0)
    assert found == {"minorizer": expected.value, "minorizer_vacuous": float(expected.vacuous or False)}
    assert math.isfinite(expected.value)


def test_a_soft_policy_weights_the_gain_in_place_of_acceptance() -> None:
    weights = np.array([1.0, 1.0, 0.25])
    found = minorizer_signals(of_logits(), ACCEPTED, config=DECLARED, soft_weights=weights)
    expected = minorizer(of_logits(), weights=weights, centred=True)
    assert found["minorizer"] == expected.value != minorizer(of_logits(), accepted=ACCEPTED, centred=True).value


@pytest.mark.parametrize("config", [{}, {"advantages_centred": False}, {"advantages_centred": "yes"}])
def test_a_run_that_declares_nothing_has_none(config: dict[str, Any]) -> None:
    assert minorizer_signals(of_logits(), ACCEPTED, config=config) == {}


def test_a_run_without_logits_has_none() -> None:
    assert minorizer_signals(of_logits(exact=False), ACCEPTED, config=DECLARED) == {}


def test_a_range_below_zero_leaves_it_unknown() -> None:
    found = minorizer_signals(of_logits(), ACCEPTED, config=DECLARED | {"reward_range": -1})
    assert all(math.isnan(value) for value in found.values())
