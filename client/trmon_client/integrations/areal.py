"""Report runs of AReaL from its trainer: `attach_areal(trainer)` before `trainer.train(...)`.

AReaL documents no hook between the log-probs and the update, so methods of this trainer, its actor, logger
and saver are wrapped.
Run with AReaL 1.0.4: areal/trainer/ppo/actor.py, areal/infra/rpc/rtensor.py, areal/utils/saver.py; read:
areal/trainer/rl_trainer.py.
"""

from __future__ import annotations

import copy
import sys
from collections import ChainMap
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from trmon_client.config.settings import OnIncident
from trmon_client.integrations.framework_runs import (
    Hook,
    begin_monitor,
    hook_fitting,
    report_batch,
    report_checkpoint,
    report_numbers,
)

ARGUMENTS = {
    "logprobs": "rollout_logprobs",
    "prox_logp": "old_logprobs",
    "loss_mask": "mask",
    "advantages": "advantages",
    "rewards": "rewards",
    "versions": "versions",
}
"""The argument of `log_batch` for each key of AReaL's trajectories, [n, T] each but the rewards, [n]."""
OF_TOKENS = ("logprobs", "loss_mask", "versions")
"""Arrays that AReaL keeps at the position of the token; the others are at the position that predicts it."""


def attach_areal(trainer: Any, *, on_incident: OnIncident | None = None) -> None:
    """Report what a `PPOTrainer` trains on; one whose methods do not fit trains as before, after one warning.

    Args: on_incident: as of `trmon_client.init`, called on the controller.
    """
    monitor = begin_monitor("areal", lambda: _description(trainer, on_incident))
    if monitor is None:
        return
    actor = trainer.actor

    def compute(original: Hook, trajectories: Any, *args: Any, **kwargs: Any) -> Any:
        # AReaL may overwrite the sampler's log-probs in the trajectories that it is given.
        given = monitor.error_guard.guard(lambda: [dict(trajectory) for trajectory in trajectories], otherwise=None)
        computed = original(trajectories, *args, **kwargs)
        report_batch(monitor, lambda: None if given is None else _arguments(actor.get_version(), given, computed))
        return computed

    def commit(original: Hook, epoch: int, step: int, global_step: int, data: Any) -> Any:
        report_numbers(monitor, global_step, lambda: data if isinstance(data, dict) else ChainMap(*data))
        return original(epoch, step, global_step, data)

    def save(original: Hook, engine: Any, epoch: int, step: int, global_step: int, *args: Any, **kwargs: Any) -> Any:
        saved = original(engine, epoch, step, global_step, *args, **kwargs)
        folder = monitor.error_guard.guard(lambda: _folder(trainer, epoch, step, global_step), otherwise=None)
        # AReaL calls it each step, for its critic too, and saves at some.
        if engine is actor and folder is not None and folder.is_dir():
            report_checkpoint(monitor, global_step, lambda: str(folder))
        return saved

    def close(original: Hook) -> Any:
        monitor.__exit__(*sys.exc_info())
        return original()

    hooks: dict[str, Hook] = {"compute_advantages": compute, "commit": commit, "save": save, "close": close}
    expected = {"compute_advantages": (), "get_version": ()}
    if hook_fitting(actor, expected, hooks, framework="areal"):
        hook_fitting(
            trainer.stats_logger, {"commit": ("epoch", "step", "global_step", "data")}, hooks, framework="areal"
        )
        hook_fitting(trainer.saver, {"save": ("engine", "epoch", "step", "global_step")}, hooks, framework="areal")
        hook_fitting(trainer, {"close": ()}, hooks, framework="areal")


def _folder(trainer: Any, epoch: int, step: int, global_step: int) -> Path:
    """Return where AReaL's saver puts the actor's weights; asking it for the folder would make it."""
    config = trainer.config.saver
    root = trainer.saver.get_save_root(config.experiment_name, config.trial_name, config.fileroot)
    return Path(root, "default", f"epoch{epoch}epochstep{step}globalstep{global_step}")


def _description(trainer: Any, on_incident: OnIncident | None) -> dict[str, Any] | None:
    """Return the settings of a run; in AReaL's SPMD mode of a data-parallel head. Its controller is the only rank."""
    actor, config = trainer.actor, trainer.config
    given = {"config": config, "project": config.experiment_name, "run": config.trial_name, "on_incident": on_incident}
    if hasattr(actor, "is_data_parallel_head"):
        ranks = {"rank": actor.data_parallel_rank, "world_size": actor.data_parallel_world_size}
        return {**given, **ranks} if actor.is_data_parallel_head() else None
    return given


def _arguments(version: int, given: Sequence[dict[str, Any]], computed: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the rows of all trajectories, of which each holds the samples of one prompt."""
    trajectories = [
        _local({**{name: one.get(name) for name in ARGUMENTS}, "advantages": other["advantages"]})
        for one, other in zip(given, computed, strict=True)
    ]
    arguments: dict[str, Any] = {"step": version, "chunks": 1, "trainer_version": version}
    for name, argument in ARGUMENTS.items():
        tensors = [trajectory[name] for trajectory in trajectories]
        if all(tensor is not None for tensor in tensors):
            shifted = [tensor.roll(-1, -1) for tensor in tensors] if name in OF_TOKENS else tensors
            arguments[argument] = [row for tensor in shifted for row in tensor]
    sizes = [len(trajectory["loss_mask"]) for trajectory in trajectories]
    arguments["rewards"] = [float(reward) for reward in arguments["rewards"]]
    arguments["group_ids"] = [group for group, size in enumerate(sizes) for _ in range(size)]
    return arguments


def _local(trajectory: dict[str, Any]) -> dict[str, Any]:
    """Return a trajectory's tensors; AReaL's controller has references to them, which fetch copies."""
    import torch

    if all(value is None or isinstance(value, torch.Tensor) for value in trajectory.values()):
        return trajectory
    references = {name: copy.copy(value) for name, value in trajectory.items()}
    fetched: dict[str, Any] = import_module("areal.infra.rpc.rtensor").RTensor.localize(references)
    return fetched
