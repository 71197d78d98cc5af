"""Report runs of SkyRL from its trainer, on the driver: `attach_skyrl(trainer)` in `BasePPOExp.get_trainer`.

The trainer's callbacks report its numbers, its pauses and its end. They see batches only after SkyRL has dropped the
rewards, so one method is wrapped. Run with SkyRL 0.3.0 on the CPU: this method, `fwd_logprobs_values_reward` and the
callbacks' calls with stub workers, and `ppo_policy_loss`. Not run: whole trainings, and the fully asynchronous trainer.
"""

from __future__ import annotations

from typing import Any

from trmon_client.config.settings import OnIncident
from trmon_client.integrations.framework_runs import (
    Hook,
    batch_arguments,
    begin_monitor,
    hook_fitting,
    is_asked_to_save,
    report_batch,
    report_checkpoint,
    report_numbers,
)
from trmon_client.monitor import Monitor

ARGUMENTS = {
    "rollout_logprobs": "rollout_logprobs",
    "action_log_probs": "old_logprobs",
    "loss_mask": "mask",
    "advantages": "advantages",
}
"""The argument of `log_batch` for each key of SkyRL's `TrainingInputBatch`."""
PARAMETERS = {"compute_advantages_and_returns": ("data",), "add_callback": ("callback",)}


def attach_skyrl(trainer: Any, *, on_incident: OnIncident | None = None) -> None:
    """Report what a `RayPPOTrainer` trains on; one whose methods do not fit trains as before, after one warning.

    Args: on_incident: as of `trmon_client.init`, called on the driver.
    """
    monitor = begin_monitor("skyrl", lambda: {**_description(trainer.cfg), "on_incident": on_incident})
    if monitor is None:
        return

    def compute(original: Hook, data: Any) -> Any:
        computed = original(data)
        report_batch(monitor, lambda: _arguments(trainer, computed))
        return computed

    if hook_fitting(trainer, PARAMETERS, {"compute_advantages_and_returns": compute}, framework="skyrl"):
        trainer.add_callback(SkyRLCallback(monitor))


class SkyRLCallback:
    """A `TrainingCallback` of SkyRL, which calls each method with the trainer, the event's values and its control."""

    def __init__(self, monitor: Monitor) -> None:
        self._monitor = monitor

    def on_log(self, _trainer: Any, event: Any, _control: Any) -> None:
        """Report the numbers that SkyRL is about to log."""
        report_numbers(self._monitor, event.global_step, lambda: event.logs)

    def on_step_end(self, _trainer: Any, _event: Any, control: Any) -> None:
        """Ask for a checkpoint at a warning."""
        if is_asked_to_save(self._monitor):
            control.should_save = True

    def on_save(self, _trainer: Any, event: Any, _control: Any) -> None:
        """Report a checkpoint."""
        if event.ckpt_path:
            report_checkpoint(self._monitor, event.global_step, lambda: event.ckpt_path)

    def on_eval_start(self, *_event: Any) -> None:
        """Report a pause."""
        self._monitor.pause("evaluation")

    def on_train_end(self, *_event: Any) -> None:
        """Finish the run."""
        self._monitor.close()

    def _ignore(self, *_event: Any) -> None:
        pass

    on_train_start = on_epoch_start = on_epoch_end = on_step_start = on_eval_end = _ignore


def _description(config: Any) -> dict[str, Any]:
    return {
        "config": config,
        "project": config.trainer.project_name,
        "run": config.trainer.run_name,
        "reports_checkpoints": True,
    }


def _arguments(trainer: Any, data: Any) -> dict[str, Any]:
    """Return the batch without the rows that SkyRL added as padding, which are the last."""
    n_rows = len(data["loss_mask"]) - data.metadata.get("pad_size", 0)
    tensors = {name: data.get(name) for name in ARGUMENTS}
    rows = {name: None if tensor is None else tensor[:n_rows] for name, tensor in tensors.items()}
    return {
        **batch_arguments(rows, ARGUMENTS),
        "step": trainer.global_step,
        "chunks": 1,
        "rewards": data["rewards"][:n_rows].sum(-1),
        "group_ids": list(data.metadata["uids"])[:n_rows],
    }
