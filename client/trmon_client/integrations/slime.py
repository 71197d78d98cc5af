"""Report runs of slime from its training ranks, by `--rollout-data-postprocess-path`.

Read, not run: slime 0.3.1, commit 624b824a, slime/backends/megatron_utils/{actor,loss}.py and slime/ray/rollout.py; it
needs Megatron and GPUs.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib import import_module
from typing import Any

from trmon_client.integrations.framework_runs import (
    Hook,
    batch_arguments,
    begin_monitor,
    hook_fitting,
    report_batch,
    report_checkpoint,
    warn_once,
)
from trmon_client.monitor import Monitor

ACTOR = "slime.backends.megatron_utils.actor"
ARGUMENTS = {
    "rollout_log_probs": "rollout_logprobs",
    "log_probs": "old_logprobs",
    "loss_masks": "mask",
    "advantages": "advantages",
    "local_raw_reward": "rewards",
    "truncated": "truncated",
}
"""The argument of `log_batch` for each key of slime's rollout data: lists, with an entry for each response."""


class RolloutReporter:
    """The function of `--rollout-data-postprocess-path`; its monitor is made at the first call."""

    def __init__(self) -> None:
        self._has_begun = False
        self._monitor: Monitor | None = None
        self._folder: str | None = None

    def __call__(self, *given: Any) -> None:
        """Report the rollouts of a data-parallel rank. Args: given: slime's (args, rollout_id, rollout_data)."""
        if len(given) != 3 or not isinstance(given[2], Mapping):
            warn_once(
                "slime arguments", "slime calls rollout_data_postprocess with other arguments: trmon does not report"
            )
            return
        args, rollout_id, data = given
        if not self._has_begun:
            self._has_begun = True
            self._begin(args)
        report_batch(self._monitor, lambda: _arguments(args, rollout_id, data))

    def _begin(self, args: Any) -> None:
        self._folder = args.save
        self._monitor = begin_monitor("slime", lambda: _description(args))
        if self._monitor is not None and (actor := sys.modules.get(ACTOR)) is not None:
            # Ray holds the methods of a rank's class as they were: what they call is wrapped.
            hook_fitting(actor, {"save": ("iteration", "model")}, {"save": self._save}, framework="slime")

    def _save(self, save: Hook, iteration: int, *args: Any, **kwargs: Any) -> Any:
        saved = save(iteration, *args, **kwargs)
        # Megatron's name; `--load` takes the folder above it, and `--ckpt-step` the number.
        report_checkpoint(self._monitor, iteration, lambda: f"{self._folder}/iter_{iteration:07d}")
        return saved


report_rollouts = RolloutReporter()


def keep_loss(_args: Any, *, pg_loss: Any, loss_masks: Any, **_given: Any) -> tuple[Any, Any, dict[str, Any]]:
    """Return the loss and the masks as they are: for `--custom-tis-function-path`, with `--get-mismatch-metrics`."""
    return pg_loss, loss_masks, {}


def _description(args: Any) -> dict[str, Any] | None:
    """Return the settings of this rank; None on ranks that have no whole log-probs, or the same as another."""
    mpu = import_module("megatron.core").mpu
    if mpu.get_context_parallel_world_size() > 1:
        warn_once("slime ranks", "slime cuts log-probs with context parallelism: trmon does not report")
        return None
    if mpu.get_tensor_model_parallel_rank() > 0 or not mpu.is_pipeline_last_stage():
        return None
    return {
        "config": args,
        "project": args.wandb_project,
        "run": args.wandb_group,
        "rank": mpu.get_data_parallel_rank(),
        "world_size": mpu.get_data_parallel_world_size(),
    }


def _arguments(args: Any, rollout_id: int, data: Mapping[str, Any]) -> dict[str, Any]:
    return {
        **batch_arguments(data, ARGUMENTS),
        "step": rollout_id,
        "chunks": 1,
        "group_ids": [index // args.n_samples_per_prompt for index in data["sample_indices"]],
    }
