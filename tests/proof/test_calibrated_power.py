"""What a calibrated trm_auto keeps of simulated healthy runs, and how much of a drift it rejects."""

from __future__ import annotations

import pytest

from benchmarks.table_calibration import simulate

KEPT = 0.97
REJECTED = 0.89


@pytest.mark.parametrize(
    ("k3", "lengths"),
    [(0.0005, (64, 1024)), (0.002, (64, 64)), (0.005, (1024, 1024))],
    ids=["quiet, of all lengths", "usual, short", "noisy, long"],
)
def test_healthy_runs_keep_their_sequences_and_ten_times_the_drift_is_cut(k3: float, lengths: tuple[int, int]) -> None:
    found = simulate(k3, lengths, seed=7)
    assert found.trm_auto >= KEPT
    assert found.rejected_10x >= REJECTED
