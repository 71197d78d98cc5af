"""Trainers of verl whose workers are stubs: the driver's methods, batches and configuration are verl's own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
import verl
from omegaconf import OmegaConf
from tensordict import TensorDict
from transfer_queue import KVBatchMeta
from verl import DataProto
from verl.experimental.separation.ray_trainer import SeparateRayPPOTrainer
from verl.trainer.ppo.v1 import trainer_base
from verl.utils import tensordict_utils
from verl.utils.tracking import Tracking

from tests.client.integrations.rollouts import LENGTH, LENGTHS, SCORES, Rollouts

CONFIG = Path(verl.__file__).parent / "trainer/config/_generated_ppo_trainer.yaml"
PROMPT = 2
UIDS = ("first", "first", "second", "second")
METRICS = {"pg_loss": 0.25, "grad_norm": 1.5, "lr": 1e-6, "mfu": 0.5}


def config(**correction: Any) -> Any:
    """Return verl's own configuration of a GRPO run. Args: correction: values of `rollout_correction`."""
    values = OmegaConf.load(CONFIG)
    values.algorithm.adv_estimator = "grpo"
    values.trainer.logger = ["console"]
    values.trainer.project_name, values.trainer.experiment_name = "math of verl", "tiny"
    values.algorithm.rollout_correction.update(correction)
    values.actor_rollout_ref.rollout.calculate_log_probs = True
    return values


def tracking(values: Any) -> Tracking:
    """Return verl's logger, as its trainers make it."""
    return Tracking(
        project_name=values.trainer.project_name,
        experiment_name=values.trainer.experiment_name,
        default_backend=values.trainer.logger,
        config=OmegaConf.to_container(values, resolve=False),
    )


def scores() -> torch.Tensor:
    """Return the reward of each response at its last token."""
    rewards = torch.zeros((len(LENGTHS), LENGTH))
    rewards[torch.arange(len(LENGTHS)), torch.tensor(LENGTHS) - 1] = torch.tensor(SCORES)
    return rewards


class Workers:
    """What the driver asks of the actor's worker group."""

    def update_actor(self, batch: TensorDict) -> TensorDict:
        """Return the metrics of an update."""
        return tensordict_utils.get_tensordict({}, non_tensor_dict={"metrics": {k: [v] for k, v in METRICS.items()}})

    def compute_log_prob(self, batch: KVBatchMeta) -> KVBatchMeta:
        """Leave the log-probs in the store, where the tests put them."""
        return batch

    def save_model_to_cpu(self, _version: int) -> None:
        """Keep the weights, of which there are none."""

    restore_model_from_cpu = clear_cpu_model = save_model_to_cpu


def separate(values: Any) -> Any:
    """Return a trainer of verl's legacy family."""
    trainer = object.__new__(SeparateRayPPOTrainer)
    trainer.config = values
    trainer.global_steps, trainer.epoch = 1, 0
    trainer.use_reference_policy = trainer.use_critic = False
    trainer.distillation_config = None
    trainer.actor_rollout_wg = Workers()
    trainer.logger = tracking(values)
    return trainer


def generated(rows: slice = slice(None), *, meta_info: dict[str, Any] | None = None, **labels: Any) -> DataProto:
    """Return rows of the rollouts as verl's rollouter leaves them. Args: labels: further labels of each row."""
    rollouts, named = Rollouts.generate(), {"uid": UIDS[rows], **labels}
    mask = rollouts.mask[rows]
    ids = torch.ones((len(mask), PROMPT + LENGTH), dtype=torch.long)
    attention = torch.cat([ids[:, :PROMPT], mask], dim=1)
    return DataProto.from_dict(
        tensors={
            "prompts": ids[:, :PROMPT],
            "responses": ids[:, PROMPT:],
            "input_ids": ids,
            "attention_mask": attention,
            "position_ids": (attention.cumsum(-1) - 1).clamp(min=0),
            "response_mask": mask,
            "rollout_log_probs": rollouts.mu[rows],
            "rm_scores": scores()[rows],
        },
        non_tensors={name: np.array(values, dtype=object) for name, values in named.items()},
        meta_info=meta_info,
    )


def train_on(trainer: Any) -> dict[str, Any]:
    """Do what `fit_step` does between generation and the synchronisation; return verl's metrics."""
    batch, old = generated(), Rollouts.generate().old
    scored = DataProto.from_dict(tensors={"old_log_probs": old, "entropys": torch.ones_like(old)})
    trainer._compute_old_log_prob = lambda _batch: (scored, 0.5)
    trainer.metrics, trainer.timing_raw = {}, {}
    trainer.reward_tensor, trainer.reward_extra_infos_dict = scores(), {}
    for method in ("_fit_compute_log_prob", "_fit_compute_advantage", "_fit_update_actor"):
        batch = getattr(trainer, method)(batch)
    return dict(trainer.metrics)


class Store:
    """Stands in for the TransferQueue, in which the rows of verl's v1 trainer lie: this one lies in memory."""

    def __init__(self, rows: dict[str, dict[str, Any]]) -> None:
        self.rows = rows

    def kv_batch_get(self, *, keys: list[str], partition_id: str, select_fields: list[str]) -> TensorDict:
        """Return the selected fields that the rows have."""
        names = [name for name in select_fields if name in self.rows[keys[0]]]
        return tensordict_utils.list_of_dict_to_tensordict([{n: self.rows[key][n] for n in names} for key in keys])

    def kv_batch_put(self, *, keys: list[str], partition_id: str, fields: TensorDict) -> KVBatchMeta:
        """Keep fields of the rows."""
        for name in fields.keys():  # noqa: SIM118  iterating a TensorDict yields rows
            for key, value in zip(keys, fields[name].unbind(), strict=True):
                self.rows[key][name] = value
        return KVBatchMeta(keys=keys, tags=self.tags, partition_id=partition_id)

    tags: list[dict[str, Any]]


def v1(values: Any, *, trainer_class: type) -> Any:
    """Return a trainer of verl's v1."""
    trainer = object.__new__(trainer_class)
    trainer.config, trainer.global_steps, trainer.parameter_sync_step = values, 5, 1
    trainer.actor_rollout_wg = Workers()
    trainer.logger = tracking(values)
    return trainer


def v1_batch(*, versions: list[int], monkeypatch: Any) -> KVBatchMeta:
    """Return a sampled batch, whose last row is verl's padding, and whose rows are the only ones in the store."""
    rollouts, rows, tags = Rollouts.generate(), {}, []
    for i, length in enumerate(LENGTHS):
        is_padding = i == len(LENGTHS) - 1
        rows[f"{UIDS[i]}_{i}_0"] = {
            "uid": UIDS[i],
            "responses": torch.ones(length, dtype=torch.long),
            "response_mask": torch.full((length,), 0 if is_padding else 1),
            "rollout_log_probs": rollouts.mu[i, :length],
            "log_probs": torch.cat([torch.zeros(PROMPT), rollouts.old[i, :length]]),
            "entropy": torch.ones(PROMPT + length),
            "rm_scores": scores()[i, :length],
        }
        tags.append({"is_padding": is_padding, "min_global_steps": versions[i], "max_global_steps": versions[i]})
    store = Store(rows)
    store.tags = tags
    monkeypatch.setattr(trainer_base, "tq", store)
    return KVBatchMeta(keys=[*rows], tags=tags, partition_id="train", extra_info={})
