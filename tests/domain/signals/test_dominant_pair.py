"""The pair with most of the drift, as an alert names it."""

from __future__ import annotations

import math

import pytest

from trmon.domain.signals.drift_features import describe_drift

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
