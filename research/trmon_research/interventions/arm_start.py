"""Where an arm starts: the configuration from then on, the trainer's state, and the updates that count before it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trmon.lab.grpo.experiment_config import ExperimentConfig
from trmon.lab.grpo.grpo_trainer import UpdateOutcome
from trmon_research.interventions.checkpoints import last_good_checkpoint
from trmon_research.interventions.intervention import Action, Intervention
from trmon_research.interventions.watched_prefix import WatchedPrefix
from trmon_research.trainer_state import TrainerState

PLACEBO_SEED_OFFSET = 500_009


@dataclass(frozen=True, eq=False, kw_only=True)
class ArmStart:
    """The start of one arm; `restored_update` is the next update of the checkpoint that it went back to."""

    config: ExperimentConfig
    state: TrainerState
    earlier: Sequence[UpdateOutcome]
    restored_update: int | None = None


def arm_start(prefix: WatchedPrefix, chosen: Intervention) -> ArmStart:
    """Return the start of an intervention at the end of a prefix."""
    config, state, earlier, restored = chosen.changed(prefix.config), prefix.state, prefix.outcomes, None
    if Action.ROLL_BACK in chosen.actions:
        checkpoint = last_good_checkpoint(
            prefix.checkpoints,
            [outcome.reward for outcome in prefix.outcomes],
            last_good_step=prefix.cause.last_good_step,
        )
        restored = checkpoint.next_update
        state, earlier = state.rolled_back(checkpoint), earlier[:restored]
    if Action.RESEED in chosen.actions:
        state = state.reseeded(prefix.config.seed + PLACEBO_SEED_OFFSET)
    return ArmStart(config=config, state=state, earlier=earlier, restored_update=restored)
