"""Report runs of slime from its training ranks, by `--rollout-data-postprocess-path`.

Read, not run: slime 0.3.1, commit 624b824a, slime/backends/megatron_utils/{actor,loss}.py and slime/ray/rollout.py; it
needs Megatron and GPUs.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from trmon_client.integrations.framework_runs import batch_arguments, begin_monitor, report_batch, warn_once
from trmon_client.monitor import Monitor

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
            self._monitor = begin_monitor("slime", lambda: _description(args))
        report_batch(self._monitor, lambda: _arguments(args, rollout_id, data))


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
