"""Improvement: each reason that a batch can give."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.core.example_columns import of_log_ratios, with_kl
from trmon_client.core.bounds import Improvement, batch_bounds, improvement, surrogate
from trmon_client.core.columns import Columns

UP, DOWN = float(np.log(1.1)), float(np.log(0.9))
ALL = np.array([True] * 4)


def step(kl: float = 0.004, **changed: Any) -> Columns:
    """Return four one-token sequences: good answers became 10% more likely, bad ones 10% less, so that L is 0.05."""
    columns = of_log_ratios([UP], [DOWN], [UP], [DOWN], advantages=[0.5, -0.5, 0.5, -0.5])
    return with_kl(columns, [kl] * 4, **changed)


def test_a_gain_above_two_standard_errors_and_the_bound_is_supported() -> None:
    columns = step()
    estimate = surrogate(columns, centred=True)
    assert estimate.value == pytest.approx(0.05)
    assert estimate.value - 2 * estimate.standard_error > batch_bounds(columns).adaptive
    found = improvement(columns, accepted=ALL, centred=True)
    assert found is Improvement.SUPPORTED
    assert found.is_supported


REASONS: dict[str, tuple[Columns, dict[str, Any], Improvement]] = {
    "the bound is larger": (step(kl=0.05), {}, Improvement.WITHIN_ERROR),
    "the reward range scales the bound": (step(), {"reward_range": 20.0}, Improvement.WITHIN_ERROR),
    "the KL is a lower bound": (step(kl_is="lower_bound"), {}, Improvement.KL_NOT_EXACT),
    "the KL is sampled": (step(kl_is="sampled"), {}, Improvement.KL_NOT_EXACT),
    "the KL is of another pair": (step(kl_pair="mismatch"), {}, Improvement.KL_NOT_EXACT),
    "a sequence was rejected": (step(), {"accepted": np.array([True, True, True, False])}, Improvement.REJECTIONS),
    "advantages were not declared centred": (step(), {"centred": False}, Improvement.SURROGATE_UNKNOWN),
    "a KL is unbounded": (step(kl=np.inf), {}, Improvement.WITHIN_ERROR),
    "a KL is NaN": (step(kl=np.nan), {}, Improvement.BOUND_UNKNOWN),
}


@pytest.mark.parametrize(("columns", "changed", "expected"), REASONS.values(), ids=REASONS)
def test_an_unsupported_improvement_states_its_reason(
    columns: Columns, changed: dict[str, Any], expected: Improvement
) -> None:
    found = improvement(columns, **{"accepted": ALL, "centred": True, **changed})
    assert found is expected
    assert not found.is_supported


def test_a_noisy_gain_is_within_the_error() -> None:
    columns = of_log_ratios([UP], [UP], [DOWN], [UP], advantages=[0.5, -0.5, 0.5, 0.5])
    found = improvement(with_kl(columns, [1e-6] * 4), accepted=ALL, centred=True)
    assert found is Improvement.WITHIN_ERROR


def test_a_padding_row_does_not_count_as_a_rejection() -> None:
    columns = of_log_ratios([UP], [DOWN], [], advantages=[0.5, -0.5, 0.0])
    found = improvement(with_kl(columns, [0.004, 0.004, 0.0]), accepted=np.array([True, True, False]), centred=True)
    assert found is Improvement.SUPPORTED
