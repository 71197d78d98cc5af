"""The fully asynchronous trainer of verl, with stubs for the queue, the rollouter and the workers."""

from __future__ import annotations

import inspect
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import ray
import torch
import verl
from omegaconf import OmegaConf
from verl.experimental.fully_async_policy import fully_async_trainer
from verl.experimental.fully_async_policy.detach_utils import RolloutSample
from verl.utils import tensordict_utils

from tests.peers.verl import drivers

CONFIG = Path(verl.__file__).parent / "experimental/fully_async_policy/config/fully_async_ppo_trainer.yaml"
SYNC_STEPS = 2
N_SAMPLES = 2
"""Prompts in a batch, each with two responses."""


def config() -> Any:
    """Return verl's own configuration, with two batches for each version of the weights."""
    own = OmegaConf.load(CONFIG)
    values = OmegaConf.merge(drivers.config(), {name: own[name] for name in own if name not in ("hydra", "defaults")})
    values.actor_rollout_ref.hybrid_engine = False
    values.actor_rollout_ref.actor.ppo_mini_batch_size = N_SAMPLES
    values.actor_rollout_ref.rollout.n = 2
    values.algorithm.rollout_correction.bypass_mode = False
    values.async_training.trigger_parameter_sync_step = SYNC_STEPS
    values.trainer.balance_batch = False
    values.trainer.test_freq = values.trainer.save_freq = -1
    return values


def sample(number: int, *, version: int) -> RolloutSample:
    """Return two responses to a prompt, as the rollouter puts them into the queue."""
    batch = drivers.generated(
        slice(2 * number, 2 * number + 2),
        meta_info={"metrics": [{"generate_sequences": 0.5, "tool_calls": 0.0}] * 2},
        min_global_steps=[version] * 2,
        max_global_steps=[version] * 2,
    )
    return RolloutSample(full_batch=batch, sample_id=str(number), epoch=0, rollout_status={})


class Queue:
    """The message queue between rollouter and trainer."""

    def __init__(self, versions: list[int]) -> None:
        self._samples = [
            ray.cloudpickle.dumps(sample(number, version=version))
            for version in versions
            for number in range(N_SAMPLES)
        ]

    async def get_sample(self) -> tuple[bytes | None, int]:
        """Return a sample, None at the end of the training, and how many wait."""
        return (self._samples.pop(0) if self._samples else None), len(self._samples)

    def get_queue_size_sync(self) -> int:
        """Return how many samples wait."""
        return len(self._samples)


class Call:
    """A method of an actor in this process."""

    def __init__(self, value: Any) -> None:
        self._done: Future[Any] = Future()
        self._done.set_result(value)

    def remote(self) -> Call:
        """Return the reference to the result."""
        return self

    def future(self) -> Future[Any]:
        """Return the result, which is there."""
        return self._done


class Rollouter:
    """What the trainer asks of the rollouter after it has sent it new weights."""

    get_total_produced_samples = Call(0)
    get_completed_steps = Call(0)
    reset_staleness = Call({"timing_s/rollouter/active_time": 0.5})


class LocalRay:
    """What the trainer calls of Ray."""

    cloudpickle = ray.cloudpickle

    @staticmethod
    def get(references: list[Call]) -> list[Any]:
        """Return the results."""
        return [reference.future().result() for reference in references]


class Workers(drivers.Workers):
    """What the trainer asks of the actor's worker group."""

    def compute_log_prob(self, batch: Any) -> Any:
        """Return log-probs of the trainer."""
        before, after = torch.zeros(drivers.PROMPT - 1), torch.zeros(1)
        rows = [
            torch.cat([before, row[:length], after])
            for row, length in zip(drivers.Rollouts.generate().old, drivers.LENGTHS, strict=True)
        ]
        values = torch.cat(rows)
        tensors = {"log_probs": values, "entropy": torch.ones_like(values)}
        return tensordict_utils.get_tensordict(tensors, non_tensor_dict={"metrics": {"mfu": 0.5}})


class Checkpoints:
    """Sends no weights."""

    async def update_weights(self, global_steps: int) -> None: ...


class Pools:
    """One GPU that does not exist."""

    def get_n_gpus(self) -> int:
        return 1


class Bar:
    """A progress bar that shows nothing."""

    def update(self, _n: int) -> None: ...

    def close(self) -> None: ...


FullyAsyncTrainer = ray.cloudpickle.loads(
    ray.cloudpickle.dumps(fully_async_trainer.FullyAsyncTrainer.__ray_metadata__.modified_class)
)
"""verl's class as Ray sends it to the process of its actor."""


class StubbedTrainer(FullyAsyncTrainer):
    """verl's trainer as it makes itself, with stubs for what is on other machines."""

    def __init__(self, versions: list[int]) -> None:
        super().__init__(
            config(), tokenizer=None, role_worker_mapping={}, resource_pool_manager=Pools(), device_name="cpu"
        )
        self.actor_rollout_wg = self.actor_wg = Workers()
        self.message_queue_client = Queue(versions)
        self.rollouter = Rollouter()
        self.checkpoint_manager = Checkpoints()
        self.progress_bar = Bar()


def trainer_globals() -> dict[str, Any]:
    """Return the globals of the trainer's methods, which Ray sends with its class."""
    return inspect.unwrap(FullyAsyncTrainer.fit_step).__globals__
