"""The configuration of an experiment: policy, task, GRPO's constants, and what goes wrong."""

from __future__ import annotations

import hashlib
from enum import Enum

import msgspec

from trmon_client.core.wire.messages import decodable

HASH_CHARACTERS = 12


class WeightFormat(Enum):
    """The precision of the rollout engine's weights."""

    FLOAT32 = "float32"
    BFLOAT16 = "bfloat16"
    FLOAT16 = "float16"
    FLOAT8 = "float8"
    """Four exponent and three mantissa bits, one scale per tensor."""
    INT8 = "int8"
    INT4 = "int4"
    INT3 = "int3"


class PpoReference(Enum):
    """The log-probs in the denominator of the PPO ratio."""

    OLD = "old"
    """The training engine's own, recomputed at the current weights before the updates."""
    ROLLOUT = "rollout"
    """The rollout engine's, as it reports them."""


class Ramp(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A value that is `start` until `first_update`, then moves to `end` in equal steps over `n_updates` updates."""

    start: float
    end: float
    first_update: int = 0
    n_updates: int = 0

    def at(self, update: int) -> float:
        """Return the value at an update."""
        if update < self.first_update:
            return self.start
        if update >= self.first_update + self.n_updates:
            return self.end
        return self.start + (self.end - self.start) * (update - self.first_update) / self.n_updates


def constant(value: float) -> Ramp:
    """Return a ramp that has one value throughout."""
    return Ramp(float(value), float(value))


class EngineMismatch(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How the rollout engine differs from the training engine.

    `weight_format` holds from `first_update` on, bfloat16 before. `router_noise` is the standard deviation of noise on
    routing logits; `lag` the age of the weights in updates, rounded; `padded_share` the share of responses that lose
    the log-probs at their end, which are reported as 0.0.
    """

    weight_format: WeightFormat = WeightFormat.BFLOAT16
    first_update: int = 0
    router_noise: Ramp = constant(0.0)
    lag: Ramp = constant(0.0)
    top_p: Ramp = constant(1.0)
    temperature: Ramp = constant(1.0)
    padded_share: Ramp = constant(0.0)

    def format_at(self, update: int) -> WeightFormat:
        """Return the precision of the weights at an update."""
        return self.weight_format if update >= self.first_update else WeightFormat.BFLOAT16


class TrainingFaults(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Faults of the training while the engines agree.

    `negated_share` is the share of groups whose rewards reach the learner with the wrong sign, `nan_share` that of
    responses whose reward is NaN, `token_limit` the longest response in tokens, None for that of the task.
    """

    negated_share: Ramp = constant(0.0)
    nan_share: Ramp = constant(0.0)
    token_limit: Ramp | None = None


@decodable
class ExperimentConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One experiment; equal configurations give equal runs on one machine and one thread.

    An update is one rollout of n_prompts x n_responses and `n_epochs` passes of `n_minibatches` optimizer steps over
    it. `mechanism` names what the configuration was drawn for. `warm_start_seed` chooses the policy that training
    starts from, `seed` everything after. The reward of the learner is the verified one plus `length_bonus` times the
    response's share of the limit. `entropy_coefficient` weighs the policy's entropy in the objective.
    """

    task: str
    architecture: str
    """Names of the trainer's `tasks` and `architectures`."""
    mechanism: str
    seed: int
    warm_start_seed: int = 0
    warm_start_exact: float = 0.4
    experts_per_token: int = 1
    router_replay: bool = False
    n_updates: int = 800
    n_prompts: int = 12
    n_responses: int = 8
    n_minibatches: int = 2
    n_epochs: int = 1
    clip: float = 0.2
    max_grad_norm: float | None = None
    ppo_reference: PpoReference = PpoReference.OLD
    learning_rate: Ramp = constant(5e-4)
    entropy_coefficient: Ramp = constant(0.0)
    length_bonus: Ramp = constant(0.0)
    engine: EngineMismatch = EngineMismatch()
    faults: TrainingFaults | msgspec.UnsetType = msgspec.UNSET
    """Left out of the hash where it is not set."""

    @property
    def content_hash(self) -> str:
        """A hash of every value, which names the run of this configuration."""
        encoded = msgspec.json.encode(self, order="deterministic")
        return hashlib.blake2b(encoded, digest_size=HASH_CHARACTERS // 2).hexdigest()

    @property
    def run_name(self) -> str:
        """The name of the run: mechanism, task, architecture and hash."""
        return f"{self.mechanism}-{self.task}-{self.architecture}-{self.content_hash}".replace("_", "-")
