"""Interventions: what the owner of a run changes in it, as actions on its configuration and its state."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum

from msgspec import structs

from trmon.lab.grpo.experiment_config import ExperimentConfig, PpoReference, Ramp, WeightFormat, constant


class Action(Enum):
    """One thing that an owner can do."""

    RESEED = "reseed"
    """Nothing but other random numbers: other prompts and samples."""
    MASK = "mask"
    """Enforce the run's calibrated policy: rejected sequences leave the loss."""
    RESYNCHRONISE = "resynchronise"
    """Sync the engine's weights at each update, in full precision."""
    REPLAY_ROUTING = "replay_routing"
    """Take the rollout's experts again in training."""
    SAMPLE_AS_SCORED = "sample_as_scored"
    """Sample from the distribution that the trainer scores: top-p and temperature 1."""
    OWN_REFERENCE = "own_reference"
    """Keep the engine's log-probs out of the loss."""
    ONE_EPOCH = "one_epoch"
    """Use each rollout once."""
    PLAIN_OBJECTIVE = "plain_objective"
    """Drop the length bonus and the entropy coefficient: the verified reward alone."""
    ROLL_BACK = "roll_back"
    """Go back to the last good checkpoint."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Intervention:
    """Actions, a factor of the learning rate from then on, and why an owner would do so."""

    actions: frozenset[Action] = frozenset()
    learning_rate_scale: float = 1.0
    reason: str

    def changed(self, config: ExperimentConfig) -> ExperimentConfig:
        """Return the configuration from the intervention on; ramps continue, the learning rate's scaled."""
        for action in self.actions:
            config = _CHANGES.get(action, _unchanged)(config)
        return structs.replace(config, learning_rate=_scaled(config.learning_rate, self.learning_rate_scale))


def intervention(*actions: Action, rate: float = 1.0, reason: str) -> Intervention:
    """Return an intervention. Args: rate: the factor of the learning rate."""
    return Intervention(actions=frozenset(actions), learning_rate_scale=rate, reason=reason)


def _unchanged(config: ExperimentConfig) -> ExperimentConfig:
    return config


def _resynchronised(config: ExperimentConfig) -> ExperimentConfig:
    engine = structs.replace(config.engine, lag=constant(0.0), weight_format=WeightFormat.FLOAT32, first_update=0)
    return structs.replace(config, engine=engine)


def _replaying(config: ExperimentConfig) -> ExperimentConfig:
    return structs.replace(config, router_replay=config.architecture == "moe")


def _sampling_as_scored(config: ExperimentConfig) -> ExperimentConfig:
    engine = structs.replace(config.engine, top_p=constant(1.0), temperature=constant(1.0))
    return structs.replace(config, engine=engine)


def _with_own_reference(config: ExperimentConfig) -> ExperimentConfig:
    return structs.replace(config, ppo_reference=PpoReference.OLD)


def _with_one_epoch(config: ExperimentConfig) -> ExperimentConfig:
    return structs.replace(config, n_epochs=1)


def _with_plain_objective(config: ExperimentConfig) -> ExperimentConfig:
    return structs.replace(config, length_bonus=constant(0.0), entropy_coefficient=constant(0.0))


def _scaled(ramp: Ramp, factor: float) -> Ramp:
    return structs.replace(ramp, start=ramp.start * factor, end=ramp.end * factor)


_CHANGES: Mapping[Action, Callable[[ExperimentConfig], ExperimentConfig]] = {
    Action.RESYNCHRONISE: _resynchronised,
    Action.REPLAY_ROUTING: _replaying,
    Action.SAMPLE_AS_SCORED: _sampling_as_scored,
    Action.OWN_REFERENCE: _with_own_reference,
    Action.ONE_EPOCH: _with_one_epoch,
    Action.PLAIN_OBJECTIVE: _with_plain_objective,
}
"""The actions that change the configuration; the others change the state or the monitor."""
