"""The checkpoint that a run goes back to: before its illness, else the best that is old enough."""

from __future__ import annotations

import pytest

from tests.lab.grpo.experiments import small
from tests.lab.recording import RecordingMonitor
from trmon_research.interventions.checkpoints import last_good_checkpoint
from trmon_research.trainer_state import ResumableTrainer

CHECKPOINTS = [ResumableTrainer(small(), RecordingMonitor()).capture(update) for update in range(0, 161, 20)]
RISES_THEN_FALLS = [0.3] * 60 + [0.7] * 40 + [0.5] * 65


@pytest.mark.parametrize(
    ("rewards", "last_good_step", "restored"),
    [
        (RISES_THEN_FALLS, 119, 120),
        (RISES_THEN_FALLS, 118, 100),
        (RISES_THEN_FALLS, 3, 0),
        (RISES_THEN_FALLS, None, 100),
        ([0.5] * 165, None, 120),
        ([0.1 + 0.001 * update for update in range(165)], None, 120),
        ([0.5] * 30, None, 0),
    ],
    ids=["at the step", "before the step", "the start", "best", "newest of equals", "old enough", "too young"],
)
def test_it_is(rewards: list[float], last_good_step: int | None, restored: int) -> None:
    found = last_good_checkpoint(CHECKPOINTS, rewards, last_good_step=last_good_step)
    assert found.next_update == restored
