"""Report runs of OpenRLHF from its controller, which sees the rollouts of all ranks.

OpenRLHF has no hook of its own: Ray calls `hook_openrlhf` in each worker, as its `worker_process_setup_hook`.
Run with OpenRLHF 0.11.2 on the CPU: `PolicyLoss`, and under Ray the controller and its experience maker with
stub workers; vLLM and flash-attn, which need a GPU, were stand-ins. Not run: whole trainings.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any, ClassVar

from trmon_client.integrations.framework_runs import (
    Hook,
    after_import,
    batch_arguments,
    begin_monitor,
    hook_fitting,
    is_asked_to_save,
    report,
    report_checkpoint,
    report_numbers,
)
from trmon_client.monitor import Monitor

TRAINER = "openrlhf.trainer.ppo_trainer"
MAKER = "openrlhf.trainer.ppo_utils.experience_maker"
ARGUMENTS = {
    "rollout_log_probs": "rollout_logprobs",
    "action_log_probs": "old_logprobs",
    "action_mask": "mask",
    "advantages": "advantages",
    "truncated": "truncated",
}
"""The argument of `log_batch` for each field of OpenRLHF's `Experience`."""


def hook_openrlhf() -> None:
    """Report from this process if it becomes the one that controls a training; without TRMON_URL, do nothing."""
    if os.environ.get("TRMON_URL"):
        after_import(TRAINER, OpenRLHFHooks().hook)


class OpenRLHFHooks:
    """The wrappers of the controller's methods: they raise what the wrapped methods raise, and nothing else."""

    TRAINER_PARAMETERS: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "train_step": ("self", "rollout_samples", "global_step"),
        "save_logs_and_checkpoints": ("self", "global_step", "logs_dict"),
    }
    MAKER_PARAMETERS: ClassVar[Mapping[str, tuple[str, ...]]] = {"make_experience_batch": ("self", "rollout_samples")}

    def __init__(self) -> None:
        self._monitor: Monitor | None = None
        self._has_begun = False
        self._step = 0

    def hook(self, module: ModuleType) -> None:
        """Wrap the methods of the trainer in this module, and those of its experience maker."""
        maker = sys.modules.get(MAKER, module)
        trainer, maker = getattr(module, "BasePPOTrainer", module), getattr(maker, "RemoteExperienceMaker", maker)
        hooks: dict[str, Hook] = {
            "train_step": self._train_step,
            "save_logs_and_checkpoints": self._save,
            "make_experience_batch": self._make,
        }
        if hook_fitting(trainer, self.TRAINER_PARAMETERS, hooks, framework="openrlhf"):
            hook_fitting(maker, self.MAKER_PARAMETERS, hooks, framework="openrlhf")

    def _train_step(self, train: Hook, trainer: Any, rollout_samples: Any, global_step: int) -> Any:
        # OpenRLHF logs the step under the number that this method returns.
        self._step = global_step + 1
        if not self._has_begun:
            self._has_begun = True
            self._monitor = begin_monitor("openrlhf", lambda: _description(trainer.args))
        return train(trainer, rollout_samples, global_step)

    def _make(self, make: Hook, maker: Any, rollout_samples: Any) -> Any:
        experiences = make(maker, rollout_samples)
        report(self._monitor, lambda known: self._report(known, maker, experiences))
        return experiences

    def _report(self, monitor: Monitor, maker: Any, experiences: Sequence[Any]) -> None:
        n_per_prompt = maker.args.rollout.n_samples_per_prompt
        for experience in experiences:
            monitor.log_batch(
                step=self._step,
                chunks=len(experiences),
                rewards=experience.info["reward"],
                group_ids=[index // n_per_prompt for index in experience.index],
                **batch_arguments(vars(experience), ARGUMENTS),
            )

    def _save(
        self, save: Hook, trainer: Any, global_step: int, logs_dict: Any = None, *args: Any, **kwargs: Any
    ) -> Any:
        report_numbers(self._monitor, global_step, lambda: logs_dict or {})
        if (monitor := self._monitor) is None:
            return save(trainer, global_step, logs_dict, *args, **kwargs)
        options, every = trainer.args.ckpt, trainer.args.ckpt.save_steps
        # This process has all ranks save: it need not agree with any.
        if is_asked_to_save(monitor):
            options.save_steps = 1
        try:
            if saves := global_step % options.save_steps == 0:
                monitor.pause("checkpoint")
            done = save(trainer, global_step, logs_dict, *args, **kwargs)
        finally:
            options.save_steps = every
        if saves and (folder := _folder(options, f"global_step{global_step}")):
            report_checkpoint(monitor, global_step, lambda: folder)
        return done


def _description(args: Any) -> dict[str, Any]:
    names = {"project": args.logger.wandb.project, "run": args.logger.wandb.run_name}
    return {"config": args, **names, "reports_checkpoints": True}


def _folder(options: Any, tag: str) -> str | None:
    """Return where OpenRLHF saves a checkpoint of the policy: DeepSpeed's, from which it resumes, else the model's."""
    if not getattr(options, "disable_ds", False):
        return f"{options.path}/_actor/{tag}"
    return f"{options.path}/{tag}_hf" if getattr(options, "save_hf", False) else None
