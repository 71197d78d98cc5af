"""Runs one arm from the end of a prefix to the end of the run, or until its collapse is certain."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

from trmon.lab.grpo.grpo_trainer import UpdateOutcome
from trmon_client.batch_decision import BatchDecision
from trmon_client.config.settings import Mode
from trmon_research.interventions.arm_start import arm_start
from trmon_research.interventions.arms import DIAGNOSED, FIXED_ARMS, cure_of
from trmon_research.interventions.intervention import Action
from trmon_research.interventions.live_monitor import LiveMonitor, live_settings
from trmon_research.interventions.pair_record import ArmRecord
from trmon_research.interventions.watched_prefix import WatchedPrefix
from trmon_research.sweep.labelled_updates import label_updates
from trmon_research.trainer_state import continue_experiment

END_UPDATES = 50


def run_arm(prefix: WatchedPrefix, name: str) -> ArmRecord:
    """Return the record of an arm of a prefix."""
    started = time.process_time()
    chosen = cure_of(prefix.cause.finding) if name == DIAGNOSED else FIXED_ARMS[name]
    start = arm_start(prefix, chosen)
    mode = Mode.ENFORCE if Action.MASK in chosen.actions else Mode.OBSERVE
    with LiveMonitor(live_settings(start.config, policy=prefix.policy, mode=mode)) as monitor:
        counted = MaskCounter(monitor)
        updates = continue_experiment(start.config, counted, start=start.state)
        outcomes, label = label_updates(updates, earlier=start.earlier)
    return ArmRecord(
        arm=name,
        actions=tuple(sorted(chosen.actions, key=lambda action: action.value)),
        learning_rate_scale=chosen.learning_rate_scale,
        restored_update=start.restored_update,
        onset=None if label.onset is None else outcomes[label.onset].update,
        sign=label.sign,
        n_updates=outcomes[-1].update + 1,
        end_reward=end_reward(outcomes),
        mask_rate=fmean(counted.rates),
        cpu_seconds=round(time.process_time() - started, 1),
    )


def end_reward(outcomes: Sequence[UpdateOutcome]) -> float:
    """Return the mean of the clean evaluations in force in the last 50 updates."""
    return fmean(outcome.evaluated.reward for outcome in outcomes[-END_UPDATES:])


@dataclass(slots=True)
class MaskCounter:
    """A monitor that notes which share of each rollout leaves the loss."""

    monitor: LiveMonitor
    rates: list[float] = field(default_factory=list)

    def log_batch(self, *, step: int, update: int | None = None, **arguments: Any) -> BatchDecision:
        """See trmon_client.Monitor."""
        decision = self.monitor.log_batch(step=step, update=update, **arguments)
        if update is None:
            self.rates.append(1.0 - decision.mask.float().mean().item())
        return decision

    def log_scalars(self, step: int, values: Any, /) -> None:
        """See trmon_client.Monitor."""
        self.monitor.log_scalars(step, values)
