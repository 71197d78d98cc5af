"""The signals that rules need beside those of the core."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.domain.stages.closings import closing
from tests.domain.trainer import made, report
from trmon.domain.stages.measure import engine_lag, k3_excess, measure_batch, ratio_shift, staleness_lag
from trmon.domain.stages.merge import merge_reports
from trmon_client.core.columns.columns import Columns
from trmon_client.core.columns.sequence_matrix import SequenceMatrix
from trmon_client.core.statistics import columns


def of(d: list[float]) -> Columns:
    """Return the columns of one sequence whose token log-ratios are d, mismatch only."""
    old = np.full((1, len(d)), -8.0)
    return columns(rollout_logprobs=old - np.array([d]), old_logprobs=old, mask=np.ones((1, len(d)), bool))


@pytest.mark.parametrize(
    ("d", "excess"),
    [
        pytest.param([0.0] * 8, 0.0, id="engines that agree to the last bit"),
        pytest.param([0.1, -0.1] * 8, 0.00667, id="symmetric noise is honest"),
        pytest.param([0.0] * 7 + [6.0], 2.354, id="one token that explodes"),
        pytest.param([3.0] * 16, 0.536, id="a shift of every token shows in k1 as well"),
    ],
)
def test_k3_excess_is_k3_over_ten_times_what_honest_log_probs_can_show(d: list[float], excess: float) -> None:
    assert k3_excess(SequenceMatrix.of(of(d)), "mismatch") == pytest.approx(excess, rel=0.01, abs=1e-9)


def test_k3_excess_of_a_batch_without_a_valid_token_is_nan() -> None:
    empty = columns(rollout_logprobs=np.zeros((2, 3)), old_logprobs=np.zeros((2, 3)), mask=np.zeros((2, 3), bool))
    assert math.isnan(k3_excess(SequenceMatrix.of(empty), "mismatch"))


@pytest.mark.parametrize(
    ("d", "shift"),
    [
        pytest.param([0.0] * 8, 0.0, id="engines that agree to the last bit"),
        pytest.param([-0.25] * 8, -math.inf, id="every token shifted alike has no spread to hide behind"),
        pytest.param([0.1, -0.1] * 8, 0.1998, id="symmetric noise averages to about 1"),
        pytest.param([-0.3, 0.0] * 8, -4.0, id="a nucleus takes from half of the tokens"),
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
def test_a_standard_error_too_small_for_a_float_counts_as_none(deviation: float, shift: float) -> None:
    content = of([0.0] * 8)
    tiny = {"mismatch_sum_ratio_dev": np.array([deviation]), "mismatch_sum_sq_ratio_dev": np.array([1e-322])}
    small = replace(content, by_name={**content.by_name, **tiny})
    assert ratio_shift(SequenceMatrix.of(small), "mismatch") == shift


def test_a_shift_without_a_valid_token_is_nan() -> None:
    empty = columns(rollout_logprobs=np.zeros((2, 3)), old_logprobs=np.zeros((2, 3)), mask=np.zeros((2, 3), bool))
    assert math.isnan(ratio_shift(SequenceMatrix.of(empty), "mismatch"))


@pytest.mark.parametrize(
    ("given", "trainer_version", "old_version", "lag"),
    [
        pytest.param("old", None, None, 0.0, id="mismatch is at one set of weights by definition"),
        pytest.param("old versions", 7, None, 3.0, id="unless versions say otherwise"),
        pytest.param("old versions", 7, 5, 1.0, id="of pi_old, where its version is named"),
        pytest.param("versions", 4, None, 0.0, id="without mismatch the trainer's version tells"),
        pytest.param("", 4, None, math.nan, id="without mismatch and versions nobody can tell"),
        pytest.param("versions", None, None, math.nan, id="without the trainer's version neither"),
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


def test_bounds_are_there_and_nan_when_kl_is_sampled() -> None:
    measured = measure_batch(merge_reports(closing(report(0))))
    assert math.isnan(measured.signals["bound_adaptive"])
    assert math.isnan(measured.signals["bound_trpo"])


def test_a_kl_below_zero_from_outside_bounds_nothing_and_raises_nothing() -> None:
    content = made()
    below_zero = {"max_kl": np.full(8, -1.0, "<f4"), "sum_kl": np.full(8, -1.0)}
    lying = replace(content, by_name={**content.by_name, **below_zero}, kl_is="exact", kl_pair="total")
    measured = measure_batch(
        merge_reports(closing(report(0, content=lying, kl_is="exact", kl_pair="total", policy=None)))
    )
    assert math.isnan(measured.signals["bound_adaptive"])


@pytest.mark.parametrize(
    ("versions", "old_version", "lag"),
    [
        pytest.param((4, 6), 5, 2.0, id="what of the whole lag is not between the engines"),
        pytest.param((4, 6), None, 0.0, id="pi_old at the trainer's present weights"),
        pytest.param(None, None, 0.0, id="a trainer that names no versions"),
    ],
)
def test_staleness_lag_is_between_the_two_policies_of_the_trainer(
    versions: tuple[int, int] | None, old_version: int | None, lag: float
) -> None:
    logprobs = np.full((2, 3), -1.0)
    measured = measure_batch(
        merge_reports(
            closing(
                report(
                    0,
                    content=columns(
                        rollout_logprobs=logprobs,
                        old_logprobs=logprobs,
                        logprobs=logprobs,
                        mask=np.ones((2, 3), bool),
                        versions=None if versions is None else np.array(versions),
                    ),
                    trainer_version=7,
                    old_version=old_version,
                )
            )
        )
    )
    assert measured.signals["staleness_lag"] == lag


def test_without_a_staleness_pair_there_is_no_staleness_lag() -> None:
    assert math.isnan(staleness_lag(of([0.1]), version_lag=3.0))


@pytest.mark.parametrize(
    ("kl_is", "kl", "vacuous"),
    [
        pytest.param("exact", 0.1, 1.0, id="a large KL certifies nothing"),
        pytest.param("exact", 0.0, 0.0, id="no KL, no error"),
        pytest.param("lower_bound", 0.1, 1.0, id="a lower bound of it can prove that nothing is certified"),
        pytest.param("lower_bound", 0.0, math.nan, id="and not that something is"),
        pytest.param("sampled", 0.1, math.nan, id="samples prove nothing"),
    ],
)
def test_whether_the_bound_is_vacuous(kl_is: str, kl: float, vacuous: float) -> None:
    content = made()
    given = {"max_kl": np.full(8, kl, "<f4"), "sum_kl": np.full(8, 32 * kl)}
    known = replace(content, by_name={**content.by_name, **given}, kl_is=kl_is, kl_pair="total")
    measured = measure_batch(
        merge_reports(closing(report(0, content=known, kl_is=kl_is, kl_pair="total", policy=None)))
    )
    assert measured.signals["bound_vacuous"] == pytest.approx(vacuous, nan_ok=True)


def test_the_share_of_mismatch_in_the_drift_is_a_signal() -> None:
    found = measure_batch(merge_reports(closing(report(0)))).signals
    mismatch, staleness = found["mismatch_prob_diff_max"], found["staleness_prob_diff_max"]
    assert found["alpha_mismatch_share"] == pytest.approx(mismatch / (mismatch + staleness))


@pytest.mark.parametrize("value", [1.7e308, -1.7e308, math.inf, -math.inf, math.nan])
def test_the_largest_numbers_and_none_are_measured_without_a_warning(value: float) -> None:
    content = made()
    given = {name: np.full_like(column, value) for name, column in content.items() if name.startswith("total_sum_")}
    given |= {"max_kl": np.full(8, np.inf, "<f4"), "sum_kl": np.where(np.arange(8) % 2, value, -value)}
    known = replace(content, by_name={**content.by_name, **given}, kl_is="exact", kl_pair="total")
    assert "bound_adaptive" in measure_batch(merge_reports(closing(report(0, content=known, policy=None)))).signals


def test_the_largest_kl_without_its_sum_bounds_nothing() -> None:
    content = made()
    known = replace(content, by_name={**content.by_name, "max_kl": np.zeros(8, "<f4")}, kl_is="exact", kl_pair="total")
    found = measure_batch(
        merge_reports(closing(report(0, content=known, kl_is="exact", kl_pair="total", policy=None)))
    ).signals
    assert math.isnan(found["bound_adaptive"])
    assert found["kl_max"] == 0.0
