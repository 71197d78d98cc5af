"""Report from AsyncGRPOTrainer, which trains on a stream of rollouts that other processes generate."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from trmon_client.integrations.method_hooks import Hook
from trmon_client.integrations.trl.stream_labels import label_samples, labels_of
from trmon_client.integrations.trl.training_hooks import TrainingHooks
from trmon_client.monitor import Monitor


class StreamHooks(TrainingHooks):
    """The wrappers of a trainer whose batches are packed: each rank's row holds the tokens of several samples."""

    PARAMETERS: ClassVar[Mapping[str, tuple[str, ...]]] = {
        **TrainingHooks.PARAMETERS,
        "get_train_dataloader": (),
        "compute_loss": ("model", "inputs"),
        "_sync_weight": (),
        "_log_step_metrics": (),
    }
    """The last two are not wrapped: trainers of other versions, with other batches, lack them."""

    def by_method(self) -> dict[str, Hook]:
        """Return the wrapper of each method."""
        return {**super().by_method(), "get_train_dataloader": self._load, "compute_loss": self._compute_loss}

    def _load(self, load: Hook, *args: Any, **kwargs: Any) -> Any:
        loader = load(*args, **kwargs)
        if (monitor := self._monitor) is not None and self._trainer.accelerator.is_main_process:
            monitor.error_guard.guard(lambda: label_samples(loader, self._trainer), otherwise=None)
        return loader

    def _compute_loss(self, compute: Hook, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        if (monitor := self._training_monitor) is None:
            return compute(model, inputs, *args, **kwargs)
        outputs: list[Any] = []
        handle = model.register_forward_hook(lambda _model, _inputs, output: outputs.append(output))
        try:
            loss = compute(model, inputs, *args, **kwargs)
        finally:
            handle.remove()
        monitor.error_guard.guard(lambda: self._report(monitor, inputs, outputs[0]), otherwise=None)
        return loss

    def _report(self, monitor: Monitor, inputs: Any, outputs: Any) -> None:
        selected = inputs["token_index"] >= 0
        labels = labels_of(inputs, selected, self._trainer)
        monitor.log_batch(
            step=self._trainer.state.global_step,
            chunks=self._chunks,
            rollout_logprobs=inputs["old_log_probs"][selected],
            logprobs=outputs.log_probs.detach().flatten()[inputs["token_index"][selected]],
            advantages=inputs["advantages"][selected],
            **labels,
        )
