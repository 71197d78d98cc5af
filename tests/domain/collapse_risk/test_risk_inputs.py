"""Inputs of the risk: which signals they read, and the scale of each."""

from __future__ import annotations

import math

import numpy as np
import pytest

from trmon.domain.collapse_risk.risk_inputs import INPUT_NAMES, OF_UPDATES, read_inputs, read_updates, scaled


def _scaled(**numbers: float) -> dict[str, float]:
    return dict(zip(INPUT_NAMES, scaled(read_inputs(numbers)).tolist(), strict=True))


def test_each_input_has_its_scale() -> None:
    values = _scaled(
        reward_mean=-0.25,
        grad_norm=2.0,
        mismatch_ess_token=0.75,
        mismatch_ratio_mean=1.25,
        clip_fraction=0.0,
    )
    assert values["reward_mean"] == -0.25
    assert values["grad_norm"] == pytest.approx(math.log(2.0))
    assert values["ess_token"] == pytest.approx(math.log(0.25), abs=1e-5)
    assert values["ratio_mean"] == pytest.approx(math.log(0.25), abs=1e-4)
    assert values["clip_fraction"] == pytest.approx(math.log(1e-4))


def test_what_is_missing_or_not_finite_is_nan() -> None:
    values = _scaled(grad_norm=math.inf, reward_mean=1e300, mismatch_kl_k3=math.nan)
    assert all(math.isnan(value) for value in values.values())


def test_the_engines_are_compared_by_mismatch_else_by_the_total() -> None:
    assert _scaled(total_kl_k3=0.5)["kl_k3"] == pytest.approx(math.log(0.5), abs=1e-5)
    assert _scaled(mismatch_kl_k3=0.25, total_kl_k3=0.5)["kl_k3"] == pytest.approx(math.log(0.25), abs=1e-5)


def test_values_out_of_their_range_are_taken_as_its_end() -> None:
    values = _scaled(mismatch_ess_token=1.5, effective_signal=-1.0)
    assert values["ess_token"] == pytest.approx(math.log(1e-6))
    assert values["effective_signal"] == pytest.approx(math.log(1e-9))


def test_inputs_of_updates_can_be_replaced_by_those_of_other_updates() -> None:
    other = {"staleness_kl_k3": 0.5, "clip_fraction": 0.25}
    values = read_inputs({"reward_mean": 1.0, "clip_fraction": 0.125}, of_updates=read_updates(other))
    np.testing.assert_array_equal(values[OF_UPDATES], [0.5, math.nan, math.nan, 0.25])
    assert values[INPUT_NAMES.index("reward_mean")] == 1.0
