"""The part of a run before the intervention: trained under the live service until a trigger fires."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum

import msgspec

from trmon.lab.grpo.experiment_config import ExperimentConfig
from trmon.lab.grpo.grpo_trainer import UpdateOutcome
from trmon_client.config.settings import Mode
from trmon_client.core.policies.policy import Policy, preset
from trmon_research.interventions.checkpoints import CHECKPOINT_EVERY
from trmon_research.interventions.live_monitor import LiveMonitor, live_settings
from trmon_research.interventions.live_service import LiveService
from trmon_research.interventions.standing_cause import StandingCause
from trmon_research.interventions.trigger import Trigger
from trmon_research.sweep.labelled_updates import label_updates
from trmon_research.sweep.run_labels import RunLabel
from trmon_research.sweep.spooled_signals import StepRows
from trmon_research.trainer_state import ResumableTrainer, TrainerState


class PrefixEnd(Enum):
    """Why a prefix ends."""

    TRIGGERED = "triggered"
    SCHEDULED = "scheduled"
    """The update came at which a healthy run is interrupted."""
    OVER = "over"
    """The run ended, or its collapse was certain, before the trigger fired."""


@dataclass(frozen=True, eq=False, kw_only=True)
class WatchedPrefix:
    """What is known when a prefix ends: its updates, the trainer's state, its checkpoints, and the service's view."""

    config: ExperimentConfig
    end: PrefixEnd
    outcomes: Sequence[UpdateOutcome]
    label: RunLabel
    state: TrainerState
    checkpoints: Sequence[TrainerState]
    policy: Policy
    cause: StandingCause


@dataclass(slots=True)
class _Watch:
    """The updates of a trainer under the service, which end with the trigger; checkpoints are kept."""

    trainer: ResumableTrainer
    service: LiveService
    trigger: Trigger
    scheduled_at: int | None
    end: PrefixEnd = PrefixEnd.OVER
    checkpoints: list[TrainerState] = field(default_factory=list)

    def updates(self, n_updates: int) -> Iterator[UpdateOutcome]:
        steps: list[StepRows] = []
        for update in range(n_updates):
            if update % CHECKPOINT_EVERY == 0:
                self.checkpoints.append(self.trainer.capture(update))
            outcome = self.trainer.run_update(update)
            steps.append(self.service.close_step())
            if self.trigger.fires(steps):
                self.end = PrefixEnd.TRIGGERED
            elif update + 1 == self.scheduled_at:
                self.end = PrefixEnd.SCHEDULED
            yield outcome
            if self.end is not PrefixEnd.OVER:
                return


def train_prefix(config: ExperimentConfig, *, trigger: Trigger, scheduled_at: int | None) -> WatchedPrefix:
    """Train a run until its trigger fires, or until an update at which it is interrupted in any case."""
    service = LiveService(msgspec.to_builtins(config), model=trigger.risk_model())
    settings = live_settings(config, policy=preset("trm_auto"), mode=Mode.OBSERVE)
    with LiveMonitor(settings, receive=service.receive) as monitor:
        watch = _Watch(ResumableTrainer(config, monitor), service, trigger, scheduled_at)
        outcomes, label = label_updates(watch.updates(config.n_updates))
    return WatchedPrefix(
        config=config,
        end=watch.end,
        outcomes=outcomes,
        label=label,
        state=watch.trainer.capture(len(outcomes)),
        checkpoints=watch.checkpoints,
        policy=service.policy,
        cause=service.cause(),
    )
