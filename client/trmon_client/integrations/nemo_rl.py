"""Report runs of NeMo-RL from its driver: `attach_nemo_rl(policy, logger, state)` before `grpo_train(...)`.

NeMo-RL documents interfaces, `PolicyInterface.train` and `LoggerInterface`: the first is wrapped for this policy, the
second has one more backend. Read, not run: NeMo-RL 0.7.0, commit 7ea279ab, nemo_rl/algorithms/grpo.py,
nemo_rl/models/policy/lm_policy.py and nemo_rl/utils/{checkpoint,logger}.py; it is not on PyPI and needs GPUs.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trmon_client.config.settings import OnIncident
from trmon_client.integrations.framework_runs import (
    Hook,
    batch_arguments,
    begin_monitor,
    hook_fitting,
    report_batch,
    report_checkpoint,
    report_numbers,
)
from trmon_client.monitor import Monitor

ARGUMENTS = {
    "generation_logprobs": "rollout_logprobs",
    "prev_logprobs": "old_logprobs",
    "advantages": "advantages",
}
"""The argument of `log_batch` for each key of NeMo-RL's training data, [B, S] each."""


def attach_nemo_rl(
    policy: Any, logger: Any, state: Any, *, config: Any = None, on_incident: OnIncident | None = None
) -> None:
    """Report what a policy trains on; one whose `train` does not fit trains as before, after one warning.

    Args: policy, logger, state, config: as `setup` returns them, the last two as `grpo_save_state` and `master_config`.
        on_incident: as of `trmon_client.init`, called on the driver.
    """
    given = {"config": {} if config is None else config, "on_incident": on_incident, "reports_checkpoints": True}
    monitor = begin_monitor("nemo-rl", lambda: given)
    if monitor is None:
        return
    step = getattr(state, "total_steps", 0)

    def train(original: Hook, data: Any, loss_fn: Any, *args: Any, **kwargs: Any) -> Any:
        # NeMo-RL logs a step under this number, which it keeps in a local variable.
        nonlocal step
        step += 1
        report_batch(monitor, lambda: _arguments(data, step))
        return original(data, loss_fn, *args, **kwargs)

    def save(original: Hook, weights_path: str, *args: Any, **kwargs: Any) -> Any:
        saved = original(weights_path, *args, **kwargs)
        # NeMo-RL renames tmp_step_N/ once all of it is written; the policy's weights lie two folders deep in it.
        report_checkpoint(monitor, step, lambda: str(Path(weights_path).parents[1]).replace("tmp_step_", "step_"))
        return saved

    hooks: dict[str, Hook] = {"train": train, "save_checkpoint": save}
    if hook_fitting(policy, {"train": ("data", "loss_fn")}, hooks, framework="nemo-rl"):
        hook_fitting(policy, {"save_checkpoint": ("weights_path",)}, hooks, framework="nemo-rl")
        logger.loggers.append(MonitorLogger(monitor))


class MonitorLogger:
    """A backend of NeMo-RL's `Logger`: numbers of training steps, under the names that it gives them."""

    def __init__(self, monitor: Monitor) -> None:
        self._monitor = monitor

    def log_metrics(
        self, metrics: Mapping[str, Any], step: int, prefix: str | None = "", *_more: Any, **_: Any
    ) -> None:
        """Report numbers of a training step; those of validations and of the GPUs are left out."""
        if prefix == "train":
            report_numbers(self._monitor, step, lambda: {f"train/{name}": value for name, value in metrics.items()})

    def finish(self) -> None:
        """Finish the run."""
        self._monitor.close()

    def _ignore(self, *_args: Any, **_kwargs: Any) -> None:
        pass

    log_hyperparams = log_histogram = log_plot = _ignore


def _arguments(data: Any, step: int) -> dict[str, Any]:
    """Return the batch without the first position, which no token precedes."""
    tensors = {name: data[name][:, 1:] for name in ARGUMENTS if data.get(name) is not None}
    if "prev_logprobs" in tensors and not tensors["prev_logprobs"].any():
        # NeMo-RL fills in zeros where it does not compute them.
        del tensors["prev_logprobs"]
    mask = data["token_mask"][:, 1:] * data["sample_mask"][:, None]
    return {**batch_arguments(tensors, ARGUMENTS), "mask": mask, "step": step, "chunks": 1}
