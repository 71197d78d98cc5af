"""Attach trmon to a trainer of TRL."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from trmon_client.config.settings import Mode, OnIncident, resolve_settings
from trmon_client.integrations.framework_runs import (
    described_config,
    hook_method,
    installed_version,
    unfit_methods,
    warn_once,
)
from trmon_client.integrations.trl.rollout_hooks import SCALARS_ONLY, RolloutHooks, ScalarHooks, TrainingHooks
from trmon_client.integrations.trl.stream_hooks import StreamHooks


def attach(
    trainer: Any,
    *,
    project: str | None = None,
    run: str | None = None,
    config: Mapping[str, Any] | object | None = None,
    owner: str | None = None,
    tags: Sequence[str] | None = None,
    url: str | None = None,
    token: str | None = None,
    policy: str | Mapping[str, Any] | None = None,
    mode: str | None = None,
    attempt: str | None = None,
    spool_dir: str | Path | None = None,
    checkpoint_on_warning: bool | None = None,
    on_incident: OnIncident | None = None,
    tracker: str | None = None,
) -> None:
    """Report what a trainer computes in `train()`: GRPOTrainer and RLOOTrainer, which may enforce, or AsyncGRPOTrainer.

    The run's configuration is the trainer's arguments without secrets, and `config`. Of a trainer whose methods do not
    fit, which one warning names, only what it logs is reported. Attaching again replaces what was attached.

    Args: as of `trmon_client.init`; the ranks are those of the trainer. on_incident is called on every rank at the end
        of an optimizer step.
    Errors: ValueError as `trmon_client.init`; none in `train()`.
    """
    given = {**locals()}
    what = f"{type(trainer).__name__} of TRL {installed_version('trl')}"
    kind: type[TrainingHooks] = StreamHooks if hasattr(trainer, "rollout_queue") else RolloutHooks
    unfit = unfit_methods(trainer, kind.PARAMETERS)
    if hasattr(trainer, "compute_liger_loss") and trainer.args.use_liger_kernel:
        unfit.append("log-probs in compute_liger_loss")
    if unfit:
        kind = ScalarHooks
        if no_trainer := unfit_methods(trainer, kind.PARAMETERS):
            _warn(trainer, f"{what} lacks {', '.join(no_trainer)}: trmon is not attached")
            return
        _warn(trainer, f"{what} lacks {', '.join(unfit)}: trmon reports {SCALARS_ONLY}")
    ranks = {"rank": 0, "world_size": 1} if kind is ScalarHooks else _ranks(trainer)
    given |= {**ranks, "config": described_config("trl", trainer.args.to_dict(), given=config)}
    settings = resolve_settings(given, environment=os.environ)
    if settings.mode is Mode.OFF:
        return
    if settings.mode is Mode.ENFORCE and kind is not RolloutHooks:
        reason = "reads the advantages before the log-probs" if kind is StreamHooks else "gives trmon no sequences"
        _warn(trainer, f"{type(trainer).__name__} {reason}: mode observe")
        settings = replace(settings, mode=Mode.OBSERVE)
    hooks = kind(trainer, replace(settings, reports_checkpoints=True, on_incident=None))
    for name, hook in hooks.by_method().items():
        hook_method(trainer, name, hook)
    if callable(getattr(trainer, "add_callback", None)):
        from trmon_client.integrations.transformers import SavingCallback

        asks_to_save = settings.checkpoint_on_warning
        callback = SavingCallback(
            lambda: hooks.monitor, hooks.newest_step, asks_to_save=asks_to_save, on_incident=settings.on_incident
        )
        trainer.remove_callback(SavingCallback)
        trainer.add_callback(callback)


def _warn(trainer: Any, text: str) -> None:
    if getattr(getattr(trainer, "accelerator", None), "is_main_process", True):
        warn_once(text, text)


def _ranks(trainer: Any) -> dict[str, int]:
    """Return the data-parallel rank: every process of a trainer is one, unless it shards a model over several."""
    accelerator = trainer.accelerator
    parallelism = getattr(accelerator, "parallelism_config", None)
    if parallelism is not None and parallelism.non_data_parallel_size > 1:
        return {}
    return {"rank": accelerator.process_index, "world_size": accelerator.num_processes}
