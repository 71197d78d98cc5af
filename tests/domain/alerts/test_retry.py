"""The waits between attempts."""

from __future__ import annotations

import pytest

from trmon.domain.alerts.delivery import RetryPolicy


@pytest.mark.parametrize(("attempts", "seconds"), [(1, 2.0), (2, 4.0), (5, 32.0), (12, 600.0), (10_000, 600.0)])
def test_waits_double_up_to_ten_minutes(attempts: int, seconds: float) -> None:
    assert RetryPolicy(max_attempts=3, backoff_seconds=2.0).wait_seconds(attempts) == seconds
