"""Report verl's runs: the scalars of its trainers, and their batches, on the driver, once advantages are known."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from typing import Any, ClassVar

import numpy as np

from trmon_client.integrations.framework_runs import (
    Hook,
    begin_monitor,
    hook_fitting,
    ids_like,
    is_asked_to_save,
    pausing_hook,
    report_batch,
    report_checkpoint,
    report_numbers,
    unfit_methods,
)
from trmon_client.monitor import Monitor


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
    correction = trainer.config.algorithm.get("rollout_correction", None) or {}
    return {
        "step": step,
        "chunks": chunks,
        "rollout_logprobs": column("rollout_log_probs"),
        # In bypass mode verl takes the sampler's log-probs for pi_old, which says nothing.
        "old_logprobs": None if correction.get("bypass_mode", False) else column("old_log_probs"),
        "mask": mask,
        "token_ids": ids_like(column("responses"), mask),
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


def _versions(versions: Any, rows: list[int] | None, *, sent: int) -> dict[str, Any]:
    """Return the weights that each row's generation began with, and those that verl last sent to the sampler."""
    chosen = versions if versions is None or rows is None else [versions[row] for row in rows]
    if chosen is None or any(version is None for version in chosen):
        return {}
    return {"versions": np.asarray(chosen, dtype=np.int64), "trainer_version": sent}


RAY_TRAINER = "verl.trainer.ppo.ray_trainer"
V1_TRAINER = "verl.trainer.ppo.v1.trainer_base"
CORRECTION = "verl.trainer.ppo.rollout_corr_helper"

Parameters = Mapping[str, tuple[str, ...]]
ESI: Parameters = {"should_save_ckpt_esi": ("max_steps_duration",)}
SAVING: Sequence[tuple[str, str | None, Parameters]] = (
    (RAY_TRAINER, None, ESI),
    ("verl.experimental.separation.ray_trainer", None, ESI),
    ("verl.experimental.fully_async_policy.fully_async_trainer", None, ESI),
    (V1_TRAINER, "PPOTrainer", {"step": ("self", "metrics", "timing_raw")}),
)
"""Where a trainer can be asked for a checkpoint; one without them is not asked."""


class TrainerHooks:
    """The wrappers of the trainers' methods; a trainer's module is wrapped when a run begins, if it is loaded."""

    PAUSES: ClassVar[Parameters] = {"_validate": ("self",), "_save_checkpoint": ("self",)}
    CORRECT: ClassVar[Parameters] = {"compute_rollout_correction_and_add_to_batch": ("batch", "rollout_corr_config")}
    PARAMETERS: ClassVar[Mapping[tuple[str, str | None], Parameters]] = {
        (CORRECTION, None): CORRECT,
        (RAY_TRAINER, "RayPPOTrainer"): {**PAUSES, "_update_actor": ("self", "batch")},
        (V1_TRAINER, "PPOTrainer"): {**PAUSES, "_compute_advantage": ("self", "batch", "metrics")},
        (V1_TRAINER, None): {**CORRECT, "compute_advantage_for_multi_trajectories": ("data", "batch_keys")},
    }
    """The wrapped methods by module and class, with the first parameters that each must have."""

    def __init__(self) -> None:
        self._monitor: Monitor | None = None
        self._seen: set[tuple[str, str | None]] = set()
        self._whole_mask: Any = None
        self._advantages: Any = None

    def begin(self, monitor: Monitor) -> None:
        """Report to this monitor from now on."""
        self._monitor, previous = monitor, self._monitor
        if previous is not None:
            previous.close()
        hooks: dict[str, Hook] = {
            "_validate": pausing_hook(lambda: self._monitor, "evaluation"),
            "_save_checkpoint": self._save,
            "_update_actor": self._update_actor,
            "_compute_advantage": self._compute_advantage,
            "compute_advantage_for_multi_trajectories": self._compute_row_advantages,
            "compute_rollout_correction_and_add_to_batch": self._correct,
        }
        for module_name, class_name in self.PARAMETERS.keys() - self._seen:
            if (owner := sys.modules.get(module_name)) is not None:
                self._seen.add((module_name, class_name))
                owner = getattr(owner, class_name, owner) if class_name else owner
                expected = self.PARAMETERS[module_name, class_name]
                for hooked, methods in [(owner, expected), *copied_methods(owner, expected)]:
                    hook_fitting(hooked, methods, hooks, framework="verl")

        for module_name, class_name, expected in SAVING:
            module = sys.modules.get(module_name)
            asked_of = module if class_name is None else getattr(module, class_name, None)
            if (module_name, "saving") not in self._seen and asked_of and not unfit_methods(asked_of, expected):
                self._seen.add((module_name, "saving"))
                hooks = {"should_save_ckpt_esi": self._asks, "step": self._step_and_save}
                hook_fitting(asked_of, expected, hooks, framework="verl")

    def _save(self, save: Hook, trainer: Any, *args: Any, **kwargs: Any) -> Any:
        if (monitor := self._monitor) is not None:
            monitor.pause("checkpoint")
        saved = save(trainer, *args, **kwargs)
        # verl deletes the actor's part of old checkpoints.
        report_checkpoint(monitor, trainer.global_steps, lambda: _folder(trainer), part="actor")
        return saved

    def _asks(self, is_expiring: Hook, *args: Any, **kwargs: Any) -> Any:
        """Let the trainer save as it does before its machines are taken away, with `trainer.save_freq` above 0."""
        is_asked = is_asked_to_save(self._monitor)
        return is_expiring(*args, **kwargs) or is_asked

    def _step_and_save(self, step: Hook, trainer: Any, *args: Any, **kwargs: Any) -> Any:
        """Save after a step of the v1 trainer, where its own checkpoints are saved, unless one is due there."""
        batch = step(trainer, *args, **kwargs)
        every = trainer.config.trainer.save_freq
        if is_asked_to_save(self._monitor) and not (every > 0 and trainer.global_steps % every == 0):
            trainer._save_checkpoint()
        return batch

    def _correct(self, correct: Hook, batch: Any, *args: Any, **kwargs: Any) -> Any:
        """Note the mask before verl's correction takes the tokens that it rejects out of it."""
        self._whole_mask = batch.batch["response_mask"]
        return correct(batch, *args, **kwargs)

    def _update_actor(self, update: Hook, trainer: Any, batch: Any, *args: Any, **kwargs: Any) -> Any:
        self._report(trainer, batch)
        return update(trainer, batch, *args, **kwargs)

    def _compute_row_advantages(self, compute: Hook, data: Any, *args: Any, **kwargs: Any) -> Any:
        self._advantages = computed = compute(data, *args, **kwargs)
        return computed

    def _compute_advantage(self, compute: Hook, trainer: Any, batch: Any, *args: Any, **kwargs: Any) -> Any:
        self._advantages = None
        tags = batch.tags
        computed = compute(trainer, batch, *args, **kwargs)
        data, self._advantages = self._advantages, None
        if data is not None:
            self._report(trainer, data, tags=tags)
        return computed

    def _report(self, trainer: Any, data: Any, **given: Any) -> None:
        mask, self._whole_mask = self._whole_mask, None
        report_batch(self._monitor, lambda: verl_arguments(trainer, data, whole_mask=mask, **given))


def _folder(trainer: Any) -> str:
    return f"{trainer.config.trainer.default_local_dir}/global_step_{trainer.global_steps}"


def copied_methods(owner: object, expected: Parameters) -> Iterator[tuple[type, Parameters]]:
    """Yield the subclasses that hold copies of methods of a class: Ray wraps all methods of the class of an actor."""
    if not isinstance(owner, type):
        return
    for subclass in _subclasses(owner):
        copied = {
            name: parameters
            for name, parameters in expected.items()
            if name in vars(owner) and getattr(vars(subclass).get(name), "__wrapped__", None) is vars(owner)[name]
        }
        if copied:
            yield subclass, copied


def _subclasses(owner: type) -> Iterator[type]:
    direct: list[type] = type.__subclasses__(owner)
    for subclass in direct:
        yield subclass
        yield from _subclasses(subclass)


class TrackingHooks:
    """The wrappers of `Tracking`: they raise what the wrapped methods raise, and nothing else.

    A run begins with each `Tracking`, which trainers make in one process; its batches arrive where it has rollouts.
    """

    PARAMETERS: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "__init__": ("self", "project_name", "experiment_name", "default_backend", "config"),
        "log": ("self", "data", "step"),
        "finish": ("self", "exit_code"),
    }

    def __init__(self) -> None:
        self._trainers = TrainerHooks()

    def hook(self) -> None:
        """Wrap the methods of `Tracking`."""
        tracking = import_module("verl.utils.tracking").Tracking
        hooks = {"__init__": self._begin, "log": self._log, "finish": self._finish}
        hook_fitting(tracking, self.PARAMETERS, hooks, framework="verl")

    def _begin(self, initialize: Hook, tracking: Any, *args: Any, **kwargs: Any) -> None:
        initialize(tracking, *args, **kwargs)
        given = inspect.signature(initialize).bind(tracking, *args, **kwargs).arguments
        config = given.get("config") or {}
        has_rollouts = isinstance(config, Mapping) and "actor_rollout_ref" in config
        monitor = begin_monitor(
            "verl",
            lambda: {
                "config": config,
                "project": given["project_name"],
                "run": given["experiment_name"],
                # The fully asynchronous trainer saves in a method of its own.
                "reports_checkpoints": has_rollouts and "async_training" not in config,
            },
        )
        if monitor is not None:
            tracking.trmon_monitor = monitor
            if has_rollouts:
                self._trainers.begin(monitor)

    def _log(self, log: Hook, tracking: Any, *args: Any, **kwargs: Any) -> None:
        log(tracking, *args, **kwargs)
        if (monitor := _monitor_of(tracking)) is not None:
            given = inspect.signature(log).bind(tracking, *args, **kwargs).arguments
            report_numbers(monitor, given["step"], lambda: given["data"])

    def _finish(self, finish: Hook, tracking: Any, *args: Any, **kwargs: Any) -> None:
        # Without a code it is the finalizer, which also runs after a crash: the exit hook of the process knows more.
        monitor = _monitor_of(tracking) if args or kwargs else None
        if monitor is not None:
            monitor.__exit__(*sys.exc_info())
        finish(tracking, *args, **kwargs)


def _monitor_of(tracking: Any) -> Monitor | None:
    monitor = getattr(tracking, "trmon_monitor", None)
    return monitor if isinstance(monitor, Monitor) else None
