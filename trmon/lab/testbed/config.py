"""The configuration of a lab run."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from trmon.lab.testbed.injection import ROLLOUT_TEMPERATURE, Fault, Injection


class Anchor(Enum):
    """The log-probs in the denominator of the PPO ratio."""

    OLD = "old"
    """The learner's own, recomputed: independent of what the rollout engine reports."""
    ROLLOUT = "rollout"
    """The rollout engine's: saves a forward pass and trusts the engine's numbers."""


@dataclass(frozen=True, slots=True)
class LabConfig:
    """One run of the lab: the seed, the injection from `onset_step` on, and GRPO's constants.

    The injection grows to its full severity in `ramp_steps`; `rollout_temperature` is what `temperature` ends at. One
    step is one rollout of n_prompts x n_responses and n_minibatches updates. `n_threads` is set in torch when the run
    starts; None leaves torch as it is. Runs with equal configurations and one thread are equal to the bit.
    """

    seed: int
    injection: Injection | None = None
    n_steps: int = 240
    onset_step: int = 60
    ramp_steps: int = 16
    learning_rate: float = 5e-4
    anchor: Anchor = Anchor.OLD
    n_prompts: int = 12
    n_responses: int = 8
    n_minibatches: int = 4
    clip: float = 0.2
    rollout_temperature: float = ROLLOUT_TEMPERATURE
    n_threads: int | None = 1

    @classmethod
    def healthy(cls, seed: int) -> LabConfig:
        """Return a run without an injection."""
        return cls(seed=seed)

    @classmethod
    def injected(cls, injection: Injection, seed: int) -> LabConfig:
        """Return a run with the injection; corrupt log-probs meet a trainer that trusts them."""
        return cls(
            seed=seed,
            injection=injection,
            anchor=Anchor.ROLLOUT if injection is Injection.PAD else Anchor.OLD,
        )

    def fault(self, step: int) -> Fault:
        """Return the severity of the injection at a step."""
        if self.injection is None or step < self.onset_step:
            return Fault()
        severity = min(1.0, (step - self.onset_step + 1) / self.ramp_steps)
        return Fault(self.injection, severity, self.rollout_temperature)
