"""What a calibrated trm_auto keeps of simulated healthy runs, and how much of a drift it rejects."""

from __future__ import annotations

import pytest

from benchmarks.table_calibration import K3, LENGTHS, simulate

KEPT = 0.97
REJECTED = 0.89


@pytest.mark.parametrize("lengths", LENGTHS, ids=lambda lengths: f"{lengths[0]} to {lengths[1]} tokens")
@pytest.mark.parametrize("k3", K3, ids=lambda k3: f"k3 {k3}")
def test_healthy_runs_keep_their_sequences_and_ten_times_the_drift_is_cut(k3: float, lengths: tuple[int, int]) -> None:
    found = simulate(k3, lengths, seed=7)
    assert found.trm_auto >= KEPT
    assert found.rejected_10x >= REJECTED
