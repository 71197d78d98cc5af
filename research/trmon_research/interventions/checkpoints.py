"""Which checkpoint a run goes back to."""

from __future__ import annotations

import math
from collections.abc import Sequence

from trmon.domain.analysis.collapse import smoothed
from trmon_research.trainer_state import TrainerState

CHECKPOINT_EVERY = 20
UNTRUSTED_UPDATES = 40
"""Checkpoints of the last updates before a trigger may already be damaged."""


def last_good_checkpoint(
    checkpoints: Sequence[TrainerState], rewards: Sequence[float], *, last_good_step: int | None
) -> TrainerState:
    """Return the newest checkpoint that holds no update after the last good step.

    Without such a step: of those at least 40 updates old, the one at whose time the smoothed reward was highest; the
    newest of equals.
    Args: checkpoints: oldest first, the first one of the start; rewards: of the rollouts, one an update so far.
    """
    if last_good_step is not None:
        return [state for state in checkpoints if state.next_update <= last_good_step + 1][-1]
    trusted = [state for state in checkpoints if state.next_update <= len(rewards) - UNTRUSTED_UPDATES]
    levels = [-math.inf, *(-math.inf if math.isnan(level) else level for level in smoothed(rewards))]
    return max(trusted or checkpoints[:1], key=lambda state: (levels[state.next_update], state.next_update))
