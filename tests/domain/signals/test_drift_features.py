"""The drift features that rules and the diagnosis read."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from trmon.domain.signals.drift_features import (
    describe_drift,
    k3_excess,
    ppl_shifts,
    ratio_shift,
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


@pytest.mark.parametrize(
    ("d", "shift"),
    [
        pytest.param([0.0] * 8, 0.0, id="engines that agree to the last bit"),
        pytest.param([-0.25] * 8, -math.inf, id="every token shifted alike has no spread"),
        pytest.param([0.1, -0.1] * 8, 0.1998, id="symmetric noise averages to about 1"),
        pytest.param([-0.3, 0.0] * 8, -4.0, id="a nucleus shifts half of the tokens"),
        pytest.param([3.0, -3.0] * 8, math.nan, id="heavy tails: the tokens that matter are not in the sample"),
    ],
)
def test_the_shift_of_the_mean_ratio_is_counted_in_standard_errors(d: list[float], shift: float) -> None:
    assert ratio_shift(SequenceMatrix.of(of(d)), "mismatch") == pytest.approx(shift, rel=0.01, nan_ok=True)


@pytest.mark.parametrize(
    ("deviation", "shift"),
    [
        pytest.param(0.0, 0.0, id="a mean of 1"),
        pytest.param(1e-170, math.inf, id="a mean above 1"),
    ],
)
def test_a_standard_error_too_small_for_a_float_counts_as_zero(deviation: float, shift: float) -> None:
    content = of([0.0] * 8)
    tiny = {"mismatch_sum_ratio_dev": np.array([deviation]), "mismatch_sum_sq_ratio_dev": np.array([1e-322])}
    small = replace(content, by_name={**content.by_name, **tiny})
    assert ratio_shift(SequenceMatrix.of(small), "mismatch") == shift


def test_the_perplexity_ratio_is_compared_with_its_spread_over_sequences() -> None:
    means = np.array([[0.1], [0.3], [-0.2], [0.4]])
    old = np.full((4, 5), -8.0)
    some = columns(rollout_logprobs=old - means, old_logprobs=old, mask=np.ones((4, 5), bool))
    ratios = np.exp(-means)
    expected = (ratios.mean() - 1) / (ratios.std() / 2)
    assert ppl_shifts(SequenceMatrix.of(some))["mismatch_ppl_shift"] == pytest.approx(expected)
    assert ppl_shifts(SequenceMatrix.of(of([0.0] * 8)))["mismatch_ppl_shift"] == 0.0
    assert ppl_shifts(SequenceMatrix.of(of([0.25] * 8)))["mismatch_ppl_shift"] == -math.inf, (
        "one sequence has no spread"
    )


def test_without_a_valid_token_all_are_nan() -> None:
    empty = columns(rollout_logprobs=np.zeros((2, 3)), old_logprobs=np.zeros((2, 3)), mask=np.zeros((2, 3), bool))
    assert math.isnan(k3_excess(SequenceMatrix.of(empty), "mismatch"))
    assert math.isnan(ratio_shift(SequenceMatrix.of(empty), "mismatch"))
    assert math.isnan(ppl_shifts(SequenceMatrix.of(empty))["mismatch_ppl_shift"])


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
