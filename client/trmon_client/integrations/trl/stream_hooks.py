"""Report from AsyncGRPOTrainer, which trains on a stream of rollouts that other processes generate."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from trmon_client.integrations.framework_runs import Hook
from trmon_client.integrations.trl.rollout_hooks import TrainingHooks
from trmon_client.monitor import Monitor

REWARDS, GROUP_IDS, VERSIONS, FIRST_VERSION = (f"trmon_{name}" for name in ("rewards", "groups", "versions", "first"))


class VersionedSamples:
    """The samples of a RolloutQueueDataset with the version of the weights that generated them.

    The dataset yields a sample before it takes the next one from its queue: the newest one taken is the one yielded.
    """

    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset
        self._queue = dataset.queue
        self._newest: Any = None
        dataset.queue = self

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for sample in self._dataset:
            yield {**sample, VERSIONS: self._newest.model_version}

    def get(self, *args: Any, **kwargs: Any) -> Any:
        """Take a sample from the queue, for the dataset."""
        self._newest = self._queue.get(*args, **kwargs)
        return self._newest

    def qsize(self) -> Any:
        """Return the length of the queue, for the dataset's metrics."""
        return self._queue.qsize()


class LabellingCollator:
    """Adds the labels of each rank's samples to the batch that TRL's collator packs, so that they travel with it."""

    def __init__(self, collate: Any, trainer: Any) -> None:
        self._collate = collate
        self._trainer = trainer

    def __call__(self, examples: list[Any]) -> dict[str, Any]:
        """Return the batch; labels are [ranks, samples], padded with the version -1."""
        import torch

        (rows,) = examples
        width = max(len(row.samples) for row in rows)

        def padded(values: list[list[float]], padding: float, dtype: torch.dtype) -> torch.Tensor:
            return torch.tensor([[*row, *[padding] * (width - len(row))] for row in values], dtype=dtype)

        samples = [row.samples for row in rows]
        rewards = [[sample["metrics"].get("reward", torch.nan) for sample in row] for row in samples]
        return {
            **self._collate(examples),
            REWARDS: padded(rewards, torch.nan, torch.float64),
            GROUP_IDS: padded([[sample["group_id"] for sample in row] for row in samples], 0, torch.int64),
            VERSIONS: padded([[sample[VERSIONS] for sample in row] for row in samples], -1, torch.int64),
            # Only the main process counts versions; all ranks know how often weights were synchronised.
            FIRST_VERSION: torch.full((len(rows),), self._trainer.model_version - n_syncs(self._trainer)),
        }


def n_syncs(trainer: Any) -> int:
    """Return how often the weights of a trainer that began at step 0 were synchronised after an optimizer step."""
    return int(trainer.state.global_step // trainer.args.weight_sync_steps)


def label_samples(loader: Any, trainer: Any) -> None:
    """Let the main process's loader add labels to its batches."""
    inner = getattr(loader, "base_dataloader", loader)
    inner.dataset.dataset = VersionedSamples(inner.dataset.dataset)
    inner.collate_fn = LabellingCollator(inner.collate_fn, trainer)


def labels_of(inputs: dict[str, Any], selected: Any, trainer: Any) -> dict[str, Any]:
    """Return the offsets of a rank's packed samples and their labels, as arguments of `log_batch`.

    Args: selected: which entries of the row are tokens of the loss.
    """
    import torch

    segments = inputs["segment_id"][selected]
    if VERSIONS not in inputs:
        lengths = torch.bincount(segments).cpu()
        return {"cu_seqlens": [0, *lengths.cumsum(0).tolist()]}
    versions = inputs[VERSIONS][0]
    n_samples = int((versions >= 0).sum())
    lengths = torch.bincount(segments, minlength=n_samples).cpu()
    return {
        "cu_seqlens": [0, *lengths.cumsum(0).tolist()],
        "rewards": inputs[REWARDS][0, :n_samples],
        "group_ids": inputs[GROUP_IDS][0, :n_samples],
        "versions": versions[:n_samples],
        "trainer_version": int(inputs[FIRST_VERSION][0]) + n_syncs(trainer),
    }


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
