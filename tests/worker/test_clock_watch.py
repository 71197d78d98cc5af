"""Jumps of the clock, noticed by a clock that is never set."""

from __future__ import annotations

import pytest

from trmon.worker.thread import JUMP_SECONDS, ClockWatch

DAY = 86_400.0


@pytest.mark.parametrize("jump", [DAY, -DAY, JUMP_SECONDS, -JUMP_SECONDS])
def test_a_jump_is_returned_once(jump: float) -> None:
    now = {"wall": 1.8e9, "monotonic": 100.0}
    watch = ClockWatch(now["wall"], lambda: now["monotonic"])
    now = {"wall": 1.8e9 + 1000.0, "monotonic": 1100.0}
    assert watch.jump_seconds(now["wall"]) == 0.0
    now["wall"] += jump
    assert watch.jump_seconds(now["wall"]) == jump
    assert watch.jump_seconds(now["wall"]) == 0.0


def test_a_clock_that_drifts_has_not_jumped() -> None:
    now = {"wall": 1.8e9, "monotonic": 100.0}
    watch = ClockWatch(now["wall"], lambda: now["monotonic"])
    now["wall"] += 10.9
    now["monotonic"] += 10.0
    assert watch.jump_seconds(now["wall"]) == 0.0
