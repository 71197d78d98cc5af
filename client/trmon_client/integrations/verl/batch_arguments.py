"""The arguments of `log_batch` from verl's batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np


def verl_arguments(
    trainer: Any, data: Any, *, whole_mask: Any = None, tags: Sequence[Mapping[str, Any]] | None = None
) -> dict[str, Any]:
    """Return the arguments for a batch whose advantages are known.

    Args: data: verl's DataProto. whole_mask: [B, T], before verl's correction rejected tokens; None: it did not.
        tags: of each row, in trainers that keep them beside the batch; rows that verl added as padding are left out.
    """
    batch, labels = data.batch, data.non_tensor_batch
    rows = None if tags is None else [i for i, tag in enumerate(tags) if not tag.get("is_padding", False)]

    def column(name: str) -> Any:
        values = batch.get(name, None)
        return values if values is None or rows is None else values[rows]

    scores, mask = column("token_level_scores"), column("response_mask")
    if whole_mask is not None and whole_mask.shape == batch["response_mask"].shape:
        mask = whole_mask if rows is None else whole_mask[rows]
    versions = labels.get("min_global_steps") if tags is None else [tag.get("min_global_steps") for tag in tags]
    step, chunks, sent = _step(trainer)
    return {
        "step": step,
        "chunks": chunks,
        "rollout_logprobs": column("rollout_log_probs"),
        # In bypass mode verl takes the sampler's log-probs for pi_old, which says nothing.
        "old_logprobs": None if _bypasses(trainer) else column("old_log_probs"),
        "mask": mask,
        "advantages": column("advantages"),
        "rewards": None if scores is None else scores.sum(-1),
        "group_ids": uids if (uids := labels.get("uid")) is None or rows is None else uids[rows],
        **_versions(versions, rows, sent=sent),
    }


def _step(trainer: Any) -> tuple[int, int, int]:
    """Return the step under which verl logs this batch, the batches of that step, and the weights sent before it."""
    sent = getattr(trainer, "current_param_version", None)
    if sent is not None:
        # The fully asynchronous trainer logs under the version that it sends after the step.
        return sent + 1, trainer.trigger_parameter_sync_step, sent
    return trainer.global_steps, getattr(trainer, "parameter_sync_step", 1), trainer.global_steps - 1


def _bypasses(trainer: Any) -> bool:
    correction = trainer.config.algorithm.get("rollout_correction", None)
    return bool(correction and correction.get("bypass_mode", False))


def _versions(versions: Any, rows: list[int] | None, *, sent: int) -> dict[str, Any]:
    """Return the weights that each row's generation began with, and those that verl last sent to the sampler."""
    chosen = versions if versions is None or rows is None else [versions[row] for row in rows]
    if chosen is None or any(version is None for version in chosen):
        return {}
    return {"versions": np.asarray(chosen, dtype=np.int64), "trainer_version": sent}
