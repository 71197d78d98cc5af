"""A receiver gets each alert while service and worker are killed once, and again under the same key at most."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.bench_alerts_under_kills import alerts_under_kills

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def test_no_alert_is_missing_or_gets_another_key(tmp_path: Path) -> None:
    found = alerts_under_kills(tmp_path, n_kills=2, n_runs=3, seed=1, seconds=400.0)
    assert (found.n_missing, found.n_other_key) == (0, 0), found
