"""The faults that `trmon lab --inject` and the demo inject, one a run, as configurations of an experiment."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any

from trmon.lab.grpo.experiment_config import (
    EngineMismatch,
    ExperimentConfig,
    PpoReference,
    Ramp,
    TrainingFaults,
    WeightFormat,
    constant,
)

LEARNING_RATE = 5e-4
TASK_LIMIT, SHORTEST_LIMIT = 13, 4
"""Tokens of a response: the task's own limit, and that at the full severity of `length`."""


class Injection(Enum):
    """The kinds of faults, one per run; each reproduces a failure seen in production runs."""

    QUANTISE = "quantise"
    """The rollout engine's weights have three bits."""
    STALE = "stale"
    """The rollout engine's weights lag further and further behind the learner's."""
    ROUTER = "router"
    """The rollout engine's routing is noisy: its tokens meet other experts than in training."""
    PAD = "pad"
    """The rollout engine loses the log-probs at the ends of its responses and pads them with 0.0."""
    SUPPORT = "support"
    """The rollout engine samples from a nucleus and reports the renormalised log-probs."""
    LR = "lr"
    """The engines agree; the learning rate is too large."""
    TEMPERATURE = "temperature"
    """The rollout engine samples, and reports log-probs, at another temperature than the trainer scores at."""
    REWARD = "reward"
    """The engines agree; the rewards of more and more groups reach the learner with the wrong sign."""
    NAN = "nan"
    """The engines agree; the verifier returns NaN for some responses."""
    ENTROPY = "entropy"
    """The engines agree; the entropy bonus of the loss is too large."""
    LENGTH = "length"
    """The engines agree; the rollout engine's limit of tokens cuts more and more responses."""


@dataclass(frozen=True, slots=True)
class Onset:
    """When an injection begins, and over how many steps it grows to its full size."""

    step: int = 60
    ramp_steps: int = 16

    def ramp(self, start: float, end: float) -> Ramp:
        """Return a value that moves with the injection."""
        return Ramp(float(start), float(end), first_update=self.step, n_updates=self.ramp_steps)


INJECTED: dict[Injection, Callable[[Onset], dict[str, Any]]] = {
    Injection.QUANTISE: lambda at: {
        "engine": EngineMismatch(weight_format=WeightFormat.INT3, first_update=at.step),
    },
    Injection.STALE: lambda at: {"engine": EngineMismatch(lag=at.ramp(0, 16))},
    Injection.ROUTER: lambda at: {"engine": EngineMismatch(router_noise=at.ramp(0, 3))},
    Injection.PAD: lambda at: {
        "engine": EngineMismatch(padded_share=at.ramp(0, 1)),
        "ppo_reference": PpoReference.ROLLOUT,  # corrupt log-probs meet a trainer that trusts them
    },
    Injection.SUPPORT: lambda at: {"engine": EngineMismatch(top_p=at.ramp(1, 0.7))},
    Injection.LR: lambda at: {"learning_rate": at.ramp(LEARNING_RATE, 4e-3)},
    Injection.TEMPERATURE: lambda at: {"engine": EngineMismatch(temperature=at.ramp(1, 0.7))},
    Injection.REWARD: lambda at: {
        "faults": TrainingFaults(negated_share=at.ramp(0, 1)),
        "entropy_coefficient": at.ramp(0, -0.1),  # so that the policy does not scatter, which is a cause of its own
    },
    Injection.NAN: lambda at: {"faults": TrainingFaults(nan_share=at.ramp(0, 0.05))},
    Injection.ENTROPY: lambda at: {"entropy_coefficient": at.ramp(0, 1)},
    Injection.LENGTH: lambda at: {"faults": TrainingFaults(token_limit=at.ramp(TASK_LIMIT, SHORTEST_LIMIT))},
}


def injected(injection: Injection | None, *, seed: int, n_steps: int, onset: Onset = Onset()) -> ExperimentConfig:
    """Return the configuration of a run with an injection, or of a healthy one; the runs of a seed start alike."""
    usual: dict[str, Any] = {
        "task": "sort",
        "architecture": "moe",
        "mechanism": "healthy" if injection is None else injection.value,
        "seed": seed,
        "warm_start_seed": seed,
        "n_updates": n_steps,
        "n_minibatches": 4,
        "learning_rate": constant(LEARNING_RATE),
    }
    return ExperimentConfig(**usual | ({} if injection is None else INJECTED[injection](onset)))
