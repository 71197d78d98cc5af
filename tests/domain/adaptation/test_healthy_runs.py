"""A healthy run of short responses, and what its calibrated policy keeps; tests/proof has all scales and lengths."""

from __future__ import annotations

from benchmarks.table_calibration import simulate


def test_a_healthy_run_keeps_its_sequences_where_fixed_bounds_reject_most() -> None:
    found = simulate(0.002, (64, 64), later=4)
    assert found.trm < 0.3
    assert found.trm_auto >= 0.97
    assert found.rejected_10x >= 0.89
