"""Report runs of prime-rl from its training ranks: `[trainer.loss] type = "custom"`, which gets one sample a call.

The loss is prime-rl's own. A micro-batch is reported when prime-rl then calls its token exporter, which knows the step.
Read, not run: prime-rl 0.8.1.dev67, commit 559b4477, src/prime_rl/trainer/ckpt.py and rl/{loss,token_export,train}.py
there; it is not on PyPI and needs GPUs.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from typing import Any

from trmon_client.integrations.framework_runs import Hook, begin_monitor, hook_fitting, report_batch, report_checkpoint
from trmon_client.monitor import Monitor

ARGUMENTS = {
    "inference_logprobs": "rollout_logprobs",
    "trainer_logprobs": "logprobs",
    "loss_mask": "mask",
    "advantages": "advantages",
}
"""The argument of `log_batch` for each field of prime-rl's `LossInputs`, 1-D tensors of one sample."""
LOSSES = {"default": ("DefaultLossConfig", "default_loss_fn"), "ipo": ("IPOLossConfig", "ipo_loss_fn")}
CHECKPOINTS = "prime_rl.trainer.ckpt"
SAVING = {"save": ("self", "step", "model"), "get_ckpt_path": ("self", "step")}
EXPORT = ("self", "step", "micro_step", "micro_batch")


class ReportingLoss:
    """The function of `import_path`; its monitor is made at the first call."""

    def __init__(self) -> None:
        self._has_begun = False
        self._monitor: Monitor | None = None
        self._samples: list[Any] = []

    def __call__(self, inputs: Any, *, type: str = "default", ranks_per_replica: int = 1, **options: Any) -> Any:
        """Return prime-rl's loss of a sample. Args: type, options: of prime-rl's loss, as in its `[trainer.loss]`."""
        if not self._has_begun:
            self._has_begun = True
            self._begin(ranks_per_replica, {"type": type, **options})
        if self._monitor is not None:
            self._samples.append(inputs)
        config, loss = LOSSES[type]
        losses = import_module("prime_rl.trainer.rl.loss")
        return getattr(losses, loss)(inputs, getattr(losses, config)(**options))

    def _begin(self, ranks_per_replica: int, loss: dict[str, Any]) -> None:
        """Start to report. Args: ranks_per_replica: of context parallelism, which see the same samples."""
        rank, world_size = (int(os.environ.get(name, default)) for name, default in (("RANK", 0), ("WORLD_SIZE", 1)))
        exporters = sys.modules.get("prime_rl.trainer.rl.token_export", sys.modules["prime_rl.trainer.rl.loss"])
        hooks: dict[str, Hook] = {"export": self._export}
        kinds = [getattr(exporters, name, exporters) for name in ("TokenExporter", "DisabledTokenExporter")]
        fits = hook_fitting(kinds[0], {"export": EXPORT}, hooks, framework="prime-rl")
        fits = fits and hook_fitting(kinds[1], {"export": EXPORT[:1]}, hooks, framework="prime-rl")
        if fits and rank % ranks_per_replica == 0:
            replica = {"rank": rank // ranks_per_replica, "world_size": world_size // ranks_per_replica}
            self._monitor = begin_monitor("prime-rl", lambda: {"config": {"loss": loss}, **replica})
            if (manager := getattr(sys.modules.get(CHECKPOINTS), "CheckpointManager", None)) is not None:
                hook_fitting(manager, SAVING, {"save": self._save}, framework="prime-rl")

    def _export(self, export: Hook, exporter: Any, step: int, *args: Any, **kwargs: Any) -> Any:
        samples, self._samples = self._samples, []
        if samples:
            report_batch(self._monitor, lambda: {"step": step, **_columns(samples)})
        return export(exporter, step, *args, **kwargs)

    def _save(self, save: Hook, manager: Any, step: int, *args: Any, **kwargs: Any) -> Any:
        saved = save(manager, step, *args, **kwargs)
        report_checkpoint(self._monitor, step, lambda: str(manager.get_ckpt_path(step)))
        return saved


reporting_loss = ReportingLoss()


def _columns(samples: list[Any]) -> dict[str, Any]:
    """Return lists of the samples' tensors, without their graph."""
    return {argument: [getattr(sample, name).detach() for sample in samples] for name, argument in ARGUMENTS.items()}
