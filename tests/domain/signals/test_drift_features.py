"""Drift features: k3_excess, the lags, and the pair that dominates."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from trmon.domain.signals.drift_features import (
    describe_drift,
    k3_excess,
    staleness_lag,
)
from trmon_client.core.bounds import engine_lag
from trmon_client.core.columns import Columns, SequenceMatrix
from trmon_client.core.statistics import columns


def of(d: list[float]) -> Columns:
    """Return the columns of one sequence whose token log-ratios are d, mismatch only."""
    old = np.full((1, len(d)), -8.0)
    return columns(rollout_logprobs=old - np.array([d]), old_logprobs=old, mask=np.ones((1, len(d)), bool))


@pytest.mark.parametrize(
    ("d", "excess"),
    [
        pytest.param([0.0] * 8, 0.0, id="engines that agree to the last bit"),
        pytest.param([0.1, -0.1] * 8, 0.00667, id="symmetric noise is valid"),
        pytest.param([0.0] * 7 + [6.0], 2.354, id="one token that explodes"),
        pytest.param([3.0] * 16, 0.536, id="a shift of every token shows in k1 as well"),
    ],
)
def test_k3_excess_is_k3_over_ten_times_what_valid_log_probs_can_show(d: list[float], excess: float) -> None:
    assert k3_excess(SequenceMatrix.of(of(d)), "mismatch") == pytest.approx(excess, rel=0.01, abs=1e-9)


def test_without_a_valid_token_k3_excess_is_nan() -> None:
    empty = columns(rollout_logprobs=np.zeros((2, 3)), old_logprobs=np.zeros((2, 3)), mask=np.zeros((2, 3), bool))
    assert math.isnan(k3_excess(SequenceMatrix.of(empty), "mismatch"))


@pytest.mark.parametrize(
    ("given", "trainer_version", "old_version", "lag"),
    [
        pytest.param("old", None, None, 0.0, id="mismatch is at one set of weights by definition"),
        pytest.param("old versions", 7, None, 3.0, id="unless versions say otherwise"),
        pytest.param("old versions", 7, 5, 1.0, id="of pi_old, where its version is named"),
        pytest.param("versions", 4, None, 0.0, id="without mismatch the trainer's version tells"),
        pytest.param("", 4, None, 0.0, id="without mismatch and versions it is assumed to be 0"),
        pytest.param("versions", None, None, 0.0, id="without the trainer's version too"),
    ],
)
def test_engine_lag_is_the_number_of_versions_between_the_two_sides(
    given: str, trainer_version: int | None, old_version: int | None, lag: float
) -> None:
    logprobs = np.full((2, 3), -1.0)
    arguments: dict[str, Any] = {"rollout_logprobs": logprobs, "logprobs": logprobs, "mask": np.ones((2, 3), bool)}
    if "old" in given:
        arguments["old_logprobs"] = logprobs
    if "versions" in given:
        arguments["versions"] = np.array([4, 6])
    found = columns(**arguments, trainer_version=trainer_version, old_version=old_version)
    assert engine_lag(found) == pytest.approx(lag, nan_ok=True)


def test_without_a_staleness_pair_there_is_no_staleness_lag() -> None:
    assert math.isnan(staleness_lag(of([0.1]), version_lag=3.0))


MISMATCH = {"mismatch_kl_k3": 0.03, "engine_lag": 0.0}
STALENESS = {"staleness_kl_k3": 0.2, "staleness_lag": 3.0}
TOTAL = {"total_kl_k3": 0.21, "version_lag_max": 4.0}


@pytest.mark.parametrize(
    ("signals", "said"),
    [
        (MISMATCH | STALENESS | TOTAL, "staleness dominates (kl_k3 0.2, lag 3)"),
        (MISMATCH | {"staleness_kl_k3": 0.001}, "mismatch dominates (kl_k3 0.03, lag 0)"),
        (TOTAL, "total is the only pair (kl_k3 0.21, lag 4)"),
        ({"mismatch_kl_k3": math.nan} | {"total_kl_k3": 0.5}, "total is the only pair (kl_k3 0.5, lag unknown)"),
        ({}, "no pair is known"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_the_pair_with_the_larger_k3_is_named_with_its_lag(signals: dict[str, float], said: str) -> None:
    assert describe_drift(signals) == said
