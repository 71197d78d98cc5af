"""Report runs of ms-swift's GRPO: a plugin registers `swift_callback`, and `--callbacks` names it.

A callback never sees log-probs, so it wraps methods of its trainer, an heir of TRL's with batches of its own.
Run with ms-swift 4.6.0: swift/rl_core/data.py and what swift/rlhf_trainers/grpo_trainer.py does with a batch; the rest
of it and rollout_mixin.py are read.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from importlib import import_module
from typing import Any

from trmon_client.config.service_address import Arguments
from trmon_client.config.settings import asks_to_save, incident_function
from trmon_client.error_guard import ErrorGuard
from trmon_client.integrations.framework_runs import (
    Hook,
    batch_arguments,
    begin_monitor,
    hook_fitting,
    newest_step,
    pausing_hook,
    report,
    report_numbers,
    warn_once,
)
from trmon_client.monitor import Monitor

ARGUMENTS = {
    "rollout_per_token_logps": "rollout_logprobs",
    "old_per_token_logps": "old_logprobs",
    "completion_mask": "mask",
    "advantages": "advantages",
    "truncated_mask": "truncated",
}
"""The argument of `log_batch` for each field of ms-swift's `GRPOBatch`."""
PARAMETERS = {
    "train": (),
    "evaluate": (),
    "log": ("logs",),
    "_postprocess_batch": ("samples", "batch_encoded_inputs"),
}


def swift_callback(args: Any, trainer: Any) -> Any:
    """Return a callback for `callbacks_map`, after attaching to the `GRPOTrainer` that makes it."""
    hooks = SwiftHooks(args, trainer)
    hook_fitting(trainer, PARAMETERS, hooks.by_method(), framework="ms-swift")
    callback = import_module("trmon_client.integrations.transformers").SavingCallback
    # By the environment alone: a rank without a monitor takes part in the agreement, too.
    guard, arguments = ErrorGuard().guard, Arguments({}, os.environ)
    asks = guard(lambda: asks_to_save(arguments), otherwise=False)
    act = guard(lambda: incident_function(arguments), otherwise=None)
    return callback(lambda: hooks.monitor, lambda: newest_step(trainer), asks_to_save=asks, on_incident=act)


class SwiftHooks:
    """The wrappers of one trainer's methods: they raise what the wrapped methods raise, and nothing else."""

    def __init__(self, args: Any, trainer: Any) -> None:
        self._args = args
        self._trainer = trainer
        self.monitor: Monitor | None = None
        """Of the newest training."""

    def by_method(self) -> dict[str, Hook]:
        """Return the wrapper of each method."""
        return {
            "train": self._train,
            "evaluate": pausing_hook(lambda: self.monitor, "evaluation"),
            "log": self._log,
            "_postprocess_batch": self._postprocess,
        }

    def _train(self, train: Hook, *args: Any, **kwargs: Any) -> Any:
        self.monitor = begin_monitor("ms-swift", self._description)
        if self.monitor is None:
            return train(*args, **kwargs)
        with self.monitor:
            return train(*args, **kwargs)

    def _description(self) -> dict[str, Any] | None:
        if self._trainer.template.sequence_parallel_size > 1:
            warn_once("ms-swift ranks", "ms-swift gives several ranks the same sequences: trmon does not report")
            return None
        accelerator = self._trainer.accelerator
        ranks = {"rank": accelerator.process_index, "world_size": accelerator.num_processes}
        return {"config": self._args, **ranks, "reports_checkpoints": True, "acts": False}

    def _postprocess(self, postprocess: Hook, samples: Any, batches: Any) -> Any:
        done = postprocess(samples, batches)
        if self._trainer.model.training:
            report(self.monitor, lambda known: self._report(known, samples, batches))
        return done

    def _report(self, monitor: Monitor, samples: Sequence[Any], batches: Sequence[Any]) -> None:
        # This rank's rewards: ms-swift keeps those of all ranks, by function.
        start = self._trainer.accelerator.process_index * len(samples)
        by_function = self._trainer._rewards_per_func[start : start + len(samples)]
        rewards = (by_function * self._trainer.reward_weights.to(by_function.device)).nansum(dim=1)
        first = 0
        for batch in (one["grpo_batch"] for one in batches):
            rows = slice(first, first := first + len(batch.completion_mask))
            monitor.log_batch(
                step=self._trainer.state.global_step,
                chunks=len(batches),
                rewards=rewards[rows],
                group_ids=[sample.prompt_id for sample in samples[rows]],
                **batch_arguments(vars(batch), ARGUMENTS),
            )

    def _log(self, log: Hook, logs: Any, *args: Any, **kwargs: Any) -> Any:
        if self._trainer.model.training and self._trainer.accelerator.is_main_process:
            report_numbers(self.monitor, newest_step(self._trainer), lambda: dict(logs))
        return log(logs, *args, **kwargs)
