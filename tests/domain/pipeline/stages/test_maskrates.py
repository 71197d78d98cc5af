"""The rejected shares of a batch."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from trmon.domain.pipeline.replay import mask_rates
from trmon_client.core.columns import Columns


def batch(lengths: list[int], *, invalid: list[int] | None = None, **columns: Any) -> Columns:
    """Return columns of sequences of these lengths."""
    values = {"n_tokens": np.array(lengths), "n_invalid": np.array(invalid or [0] * len(lengths))}
    return Columns(values | {name: np.array(array) for name, array in columns.items()})


@pytest.mark.parametrize(
    ("columns", "accepted", "expected"),
    [
        pytest.param(
            batch([10, 20, 30, 40]),
            [1, 1, 1, 0],
            {"mask_rate": 0.25, "mask_rate_tokens": 0.4, "mask_rate_long": 1.0, "mask_rate_short": 0.0},
            id="the longest is rejected",
        ),
        pytest.param(
            batch([10, 0, 0], invalid=[0, 0, 3]),
            [1, 0, 0],
            {"mask_rate": 0.5, "mask_rate_tokens": 0.0},
            id="empty sequences are left out, wholly invalid ones count",
        ),
        pytest.param(batch([0, 0]), [0, 0], {"mask_rate": math.nan, "mask_rate_long": math.nan}, id="nothing to share"),
        pytest.param(batch([]), [], {"mask_rate": math.nan, "mask_rate_short": math.nan}, id="no sequence at all"),
        pytest.param(
            batch([5, 5, 5, 5], advantage=[1.0, 2.0, -1.0, math.nan]),
            [1, 0, 0, 0],
            {"mask_rate_positive": 0.5, "mask_rate_negative": 1.0},
            id="by the sign of the advantage, nan has none",
        ),
    ],
)
def test_mask_rates(columns: Columns, accepted: list[int], expected: dict[str, float]) -> None:
    found = mask_rates(columns, np.array(accepted, bool))
    assert {name: found[name] for name in expected} == pytest.approx(expected, nan_ok=True)


def test_rates_by_sign_need_advantages() -> None:
    assert "mask_rate_positive" not in mask_rates(batch([5]), np.array([True]))
