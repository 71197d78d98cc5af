"""One pair: a prefix that is trained once, and arms that continue from its end with other masks and equal seeds."""

from __future__ import annotations

import math
import time
from statistics import fmean
from typing import Any

import msgspec
import numpy as np

from trmon.lab.grpo.experiment_config import ExperimentConfig
from trmon.lab.grpo.grpo_trainer import UpdateOutcome
from trmon_client.batch_decision import BatchDecision
from trmon_client.config.settings import Mode
from trmon_client.core.policies.criteria import Criterion
from trmon_client.core.policies.policy import Policy, preset
from trmon_research.interventions.live_monitor import LiveMonitor, live_settings
from trmon_research.trainer_state import ResumableTrainer, TrainerState, continue_experiment

PREFIX_UPDATES, ARM_UPDATES = 200, 200
END_UPDATES = 50
BOUND_UPDATES = 40
"""The last updates of the prefix, whose rollouts the bound is measured on."""
BOUND_QUANTILE = 0.75
ARMS = {"unmasked": None, "hard": None, "soft_0.25": 0.25, "soft_1": 1.0, "soft_4": 4.0}
"""The tau of each arm; None: not soft."""


class ArmOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """One arm: rewards of the clean evaluation, and what its mask took.

    `end_reward` is the mean over the last 50 updates, `mean_reward` over all. `beyond_bound` is the share of
    sequences that violate the bound, `mean_weight` the mean of what they count in the loss.
    """

    end_reward: float
    mean_reward: float
    beyond_bound: float
    mean_weight: float
    cpu_seconds: float


class PairOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """One pair: the run that it continues, the upper bound of its mean_k3, and its arms by name."""

    run: str
    mechanism: str
    bound: float
    prefix_reward: float
    prefix_cpu_seconds: float
    arms: dict[str, ArmOutcome]


class _WatchedDecisions:
    """A monitor that keeps, of each rollout, mean_k3 by sequence, the share beyond the bound and the mean weight."""

    def __init__(self, monitor: LiveMonitor) -> None:
        self._monitor = monitor
        self.mean_k3: list[np.ndarray[Any, Any]] = []
        self.beyond: list[float] = []
        self.weights: list[float] = []

    def log_batch(self, *, step: int, update: int | None = None, **arguments: Any) -> BatchDecision:
        """See trmon_client.Monitor."""
        decision = self._monitor.log_batch(step=step, update=update, **arguments)
        if update is None and decision.columns is not None:
            columns = decision.columns.numpy()
            self.mean_k3.append(columns["mismatch_sum_k3"] / columns["n_tokens"])
            self.beyond.append(decision.mask_rate)
            self.weights.append(decision.sequence_weights.mean().item())
        return decision

    def log_scalars(self, step: int, values: Any, /) -> None:
        """See trmon_client.Monitor."""
        self._monitor.log_scalars(step, values)


def run_pair(config: ExperimentConfig, *, prefix_updates: int = PREFIX_UPDATES) -> PairOutcome:
    """Train the prefix and the arms of one configuration of PREFIX_UPDATES + ARM_UPDATES updates."""
    started = time.process_time()
    with LiveMonitor(live_settings(config, policy=preset("trm_auto"), mode=Mode.OBSERVE)) as monitor:
        watched = _WatchedDecisions(monitor)
        trainer = ResumableTrainer(config, watched)
        prefix = [trainer.run_update(update) for update in range(prefix_updates)]
        state = trainer.capture(prefix_updates)
    seconds = time.process_time() - started
    bound = float(np.quantile(np.concatenate(watched.mean_k3[-BOUND_UPDATES:]), BOUND_QUANTILE))
    return PairOutcome(
        run=config.run_name,
        mechanism=config.mechanism,
        bound=bound,
        prefix_reward=_reward(prefix[-END_UPDATES:]),
        prefix_cpu_seconds=round(seconds, 1),
        arms={name: _run_arm(name, config, state, bound=bound) for name in ARMS},
    )


def _run_arm(name: str, config: ExperimentConfig, state: TrainerState, *, bound: float) -> ArmOutcome:
    """Train one arm from the end of the prefix. Args: bound: the upper one of mean_k3."""
    started = time.process_time()
    policy = Policy("mean_k3", (Criterion("mean_k3", "mismatch", upper=bound),), soft_tau=ARMS[name])
    mode = Mode.OBSERVE if name == "unmasked" else Mode.ENFORCE
    with LiveMonitor(live_settings(config, policy=policy, mode=mode)) as monitor:
        watched = _WatchedDecisions(monitor)
        outcomes = list(continue_experiment(config, watched, start=state))
    return _arm_outcome(outcomes, watched, cpu_seconds=time.process_time() - started)


def _arm_outcome(outcomes: list[UpdateOutcome], watched: _WatchedDecisions, *, cpu_seconds: float) -> ArmOutcome:
    return ArmOutcome(
        end_reward=_reward(outcomes[-END_UPDATES:]),
        mean_reward=_reward(outcomes),
        beyond_bound=round(fmean(rate for rate in watched.beyond if not math.isnan(rate)), 6),
        mean_weight=round(fmean(watched.weights), 6),
        cpu_seconds=round(cpu_seconds, 1),
    )


def _reward(outcomes: list[UpdateOutcome]) -> float:
    return round(fmean(outcome.evaluated.reward for outcome in outcomes), 6)
