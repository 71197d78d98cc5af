"""Report from GRPOTrainer and RLOOTrainer, which generate rollouts and train on them in turn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from trmon_client.batch_decision import BatchDecision
from trmon_client.config.settings import ClientSettings
from trmon_client.integrations.framework_runs import (
    SUMMARY_OF_TRAINING,
    Hook,
    hook_method,
    ids_like,
    newest_step,
    pausing_hook,
    report_numbers,
    warn_once,
)
from trmon_client.monitor import Monitor

NAMES = ("loss", "grad_norm", "learning_rate", "entropy", "completions/clipped_ratio")
PREFIXES = ("sampling/", "sample/staleness_", "rewards/", "eval_")
RENAMED = {"learning_rate": "lr"}
SCALARS_ONLY = "what it logs, without its sequences"


def trainer_scalars(history: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the numbers of the newest entry of a trainer's log history that its batches do not give."""
    newest = history[-1] if history else {}
    return {
        RENAMED.get(name, name): value
        for name, value in newest.items()
        if value is not None and (name in NAMES or name.startswith(PREFIXES))
    }


class TrainingHooks:
    """The wrappers of one trainer's methods: they raise what the wrapped methods raise, and nothing else."""

    PARAMETERS: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "train": (),
        "evaluate": (),
        "log": ("logs",),
        "_save_checkpoint": ("model", "trial"),
    }
    """The methods that are wrapped, and the first parameters that they must have."""

    def __init__(self, trainer: Any, settings: ClientSettings) -> None:
        self._trainer = trainer
        self._settings = settings
        self._monitor: Monitor | None = None

    @property
    def monitor(self) -> Monitor | None:
        """The monitor of the newest training."""
        return self._monitor

    def by_method(self) -> dict[str, Hook]:
        """Return the wrapper of each method."""
        return {
            "train": self._train,
            "evaluate": pausing_hook(lambda: self._monitor, "evaluation"),
            "_save_checkpoint": pausing_hook(lambda: self._monitor, "checkpoint"),
            "log": self._log,
        }

    def _begin(self) -> None:
        """Forget what an earlier training left."""

    def newest_step(self) -> int:
        """Return the step under which the newest batch is reported."""
        return newest_step(self._trainer)

    def _log_all(self, monitor: Monitor) -> None:
        """Report every number of a trainer whose batches are not seen, at the step that it logs."""
        newest = self._trainer.state.log_history[-1]
        if SUMMARY_OF_TRAINING not in newest:
            values = {name: value for name, value in newest.items() if name != "step"}
            report_numbers(monitor, int(newest["step"]), lambda: values)

    @property
    def _training_monitor(self) -> Monitor | None:
        """The monitor, unless the trainer evaluates."""
        return self._monitor if self._trainer.model.training else None

    @property
    def _logging_monitor(self) -> Monitor | None:
        """The monitor, unless the trainer evaluates outside of a training."""
        trainer = self._trainer
        return self._monitor if trainer.model.training or getattr(trainer, "is_in_train", False) else None

    @property
    def _chunks(self) -> int | None:
        """The number of micro-batches of this optimizer step; None for the last one of an epoch, which may be cut."""
        chunks = int(self._trainer.current_gradient_accumulation_steps)
        return chunks if chunks == self._trainer.args.gradient_accumulation_steps else None

    def _train(self, train: Hook, *args: Any, **kwargs: Any) -> Any:
        self._begin()
        with Monitor(self._settings) as self._monitor:
            return train(*args, **kwargs)

    def _log(self, log: Hook, *args: Any, **kwargs: Any) -> Any:
        logged = log(*args, **kwargs)
        if (monitor := self._logging_monitor) is not None and self._trainer.state.is_world_process_zero:
            monitor.error_guard.guard(lambda: self._log_scalars(monitor), otherwise=None)
        return logged

    def _log_scalars(self, monitor: Monitor) -> None:
        if values := trainer_scalars(self._trainer.state.log_history):
            monitor.log_scalars(self.newest_step(), values)


class ScalarHooks(TrainingHooks):
    """The wrappers of a trainer of which nothing else is known: its run is judged by what it logs."""

    PARAMETERS: ClassVar[Mapping[str, tuple[str, ...]]] = {"train": (), "log": ("logs",)}

    def by_method(self) -> dict[str, Hook]:
        hooks = super().by_method()
        return {name: hook for name, hook in hooks.items() if callable(getattr(self._trainer, name, None))}

    def newest_step(self) -> int:
        return int(self._trainer.state.global_step)

    def _train(self, train: Hook, *args: Any, **kwargs: Any) -> Any:
        # The other ranks log nothing.
        is_main = getattr(self._trainer, "is_world_process_zero", lambda: True)()
        return super()._train(train, *args, **kwargs) if is_main else train(*args, **kwargs)

    def _log(self, log: Hook, *args: Any, **kwargs: Any) -> Any:
        logged = log(*args, **kwargs)
        if (monitor := self._monitor) is not None and self._trainer.state.is_world_process_zero:
            monitor.error_guard.guard(lambda: self._log_all(monitor), otherwise=None)
        return logged


REWARDS, GROUP_IDS, OLD_LOGPS = "trmon_rewards", "trmon_group_ids", "trmon_old_logps"
TRUNCATED, SAMPLED = "trmon_truncated", "trmon_sampled"


def end_tokens(trainer: Any) -> set[int]:
    """Return the tokens that end a completion, and padding, after which TRL does not take it for cut."""
    ends = getattr(trainer, "eos_token_ids", None) or [getattr(trainer, "eos_token_id", None)]
    padding = getattr(trainer, "pad_token_id", getattr(getattr(trainer, "_tokenizer", None), "pad_token_id", None))
    return {token for token in (*ends, padding) if token is not None}


class RolloutLabels:
    """Collects while a trainer generates rollouts; what is public in it is set.

    `rewards`: by function. `completions`: lists of ids. `sampled`: lists of log-probs of their tokens.
    """

    def __init__(self, trainer: Any) -> None:
        self._trainer = trainer
        self._n_groups_before = 0
        self.begin()

    def begin(self) -> None:
        """Forget the previous rollouts."""
        self.rewards: Any = None
        self.completions: Any = None
        self.sampled: Any = None
        self._first_score: Any = None

    def note_score(self, score: Any) -> None:
        """Keep the first log-probs of the rollouts: those of the policy; others are of the reference."""
        self._first_score = score if self._first_score is None else self._first_score

    def added_to(self, rollouts: dict[str, Any]) -> dict[str, Any]:
        """Return the rollouts with labels, [B]; and with [B, T] log-probs where RLOO keeps only their sums."""
        # Gathered rewards [all ranks' rows, functions] become this rank's weighted sums; NaN where none applies.
        n_rows = len(rollouts["completion_mask"])
        import torch

        trainer, by_function = self._trainer, self.rewards
        rewards = (by_function * trainer.reward_weights.to(by_function.device)).nansum(dim=1)
        rewards = torch.where(by_function.isnan().all(dim=1), torch.nan, rewards)
        groups = torch.arange(len(rewards), device=rewards.device) // trainer.num_generations
        groups += self._n_groups_before
        # Several generations may share one optimizer step: their groups have ids of their own.
        self._n_groups_before += len(rewards) // trainer.num_generations
        first = trainer.accelerator.process_index * n_rows
        local = slice(first, first + n_rows)
        labels = {REWARDS: rewards[local], GROUP_IDS: groups[local]}
        if self.completions is not None and (ends := end_tokens(trainer)):
            cut = np.array([bool(ids) and ids[-1] not in ends for ids in self.completions])
            labels[TRUNCATED] = torch.from_numpy(cut).to(rewards.device)
        if "old_logps" in rollouts:
            labels[OLD_LOGPS] = self._first_score[0]
            if self.sampled is not None:
                labels[SAMPLED] = padded_like(rollouts["completion_mask"], self.sampled)
        self.begin()
        return {**rollouts, **labels}


def rows_of(logprobs: Sequence[Any]) -> list[Any]:
    """Return vLLM's log-probs, a number or a list of one a token, as rows. Errors: ValueError: several a token."""
    return [np.asarray(row, dtype=np.float32).reshape(len(row)) for row in logprobs]


def padded_like(mask: Any, rows: Sequence[Any]) -> Any:
    """Return rows of float32 numbers as a tensor of the shape of a mask, [B, T], with NaN after their ends."""
    padded = np.full(tuple(mask.shape), np.nan, dtype=np.float32)
    for into, row in zip(padded, rows, strict=True):
        into[: len(row)] = row
    import torch

    return torch.from_numpy(padded).to(mask.device)


def restrict_to_accepted(decision: BatchDecision, inputs: dict[str, Any], scored: Any) -> Any:
    """Change what a loss is computed from, so that rejected rows give no gradient; return TRL's scores of the batch.

    Their advantages become 0, their ratios 1, their KL to the reference 0, and their entropies constants. Token rules
    and soft policies weigh the advantages, which multiplies each token's loss by its weight; RLOO's loss has sequences
    only. A sequence that a soft policy keeps with a weight keeps its whole KL and entropy.

    Args: inputs: of `_compute_loss`, changed in place. scored: log-probs and entropies [B, T], then TRL's own.
    """
    import torch

    pi, entropies = scored[0], scored[1]
    advantages = inputs["advantages"]
    accepted = decision.sequence_weights > 0 if decision.is_soft else decision.mask
    rows = accepted[:, None]
    changed: dict[str, Any] = {}
    has_weights = (decision.tokens is not None or decision.is_soft) and "old_logps" not in inputs
    weights = decision.weights if has_weights else None
    if weights is not None:
        per_token = advantages if advantages.dim() == 2 else advantages[:, None]
        changed["advantages"] = torch.where(weights > 0, per_token * weights, 0.0)
    else:
        if decision.is_soft:
            advantages = advantages * decision.sequence_weights.to(advantages.dtype)
        changed["advantages"] = torch.where(accepted if advantages.dim() == 1 else rows, advantages, 0.0)
    for name in {"old_per_token_logps", "ref_per_token_logps"} & inputs.keys():
        changed[name] = decision.clean(inputs[name], pi)
    if "importance_sampling_ratio" in inputs:
        changed["importance_sampling_ratio"] = torch.where(rows, inputs["importance_sampling_ratio"], 1.0)
    inputs |= changed
    return scored if entropies is None else (pi, torch.where(rows, entropies, entropies.detach()), *scored[2:])


class UpdateKeys:
    """Numbers micro-batches; those of one optimizer step may belong to two rollout batches.

    Args: calls_per_rollout: how many micro-batches a rollout batch is used for.
    """

    def __init__(self, *, calls_per_rollout: int) -> None:
        self._calls_per_rollout = calls_per_rollout
        self._calls = 0
        self.rollout_step = 0
        """The optimizer step at which the newest rollouts were generated."""
        self._open_step: int | None = None
        self._chunks: int | None = None

    def begin_rollout(self, global_step: int) -> None:
        """Note that rollouts are generated now."""
        self.rollout_step, self._calls = global_step, 0

    def next(self, global_step: int, *, chunks: int | None) -> tuple[int, int, int | None]:
        """Return the key of a micro-batch: the step of the generation, the update since then, its chunks if known.

        Args: chunks: of this optimizer step; None where it may be cut short.
        """
        if global_step != self._open_step:
            left = self._calls_per_rollout - self._calls
            is_of_one_update = self.rollout_step == global_step or (chunks is not None and chunks <= left)
            self._open_step, self._chunks = global_step, chunks if is_of_one_update else None
        self._calls += 1
        return self.rollout_step, global_step - self.rollout_step, self._chunks


class RolloutHooks(TrainingHooks):
    """The wrappers of a trainer that generates rollouts, and trains on them in one or several optimizer steps."""

    PARAMETERS: ClassVar[Mapping[str, tuple[str, ...]]] = {
        **TrainingHooks.PARAMETERS,
        "_generate_and_score_completions": ("inputs",),
        "_calculate_rewards": ("inputs", "prompts", "completions", "completion_ids_list"),
        "_compute_loss": ("model", "inputs"),
        "_get_per_token_logps_and_entropies": ("model", "input_ids", "attention_mask", "logits_to_keep"),
    }

    def __init__(self, trainer: Any, settings: ClientSettings) -> None:
        super().__init__(trainer, settings)
        self._begin()
        engine: Any = getattr(trainer, "vllm_generation", None)
        if callable(getattr(engine, "generate", None)):
            # RLOOTrainer of TRL 1 asks vLLM for no log-probs; 0 asks for those of what it samples.
            if getattr(engine, "logprobs", 0) is None:
                engine.logprobs = 0
            hook_method(engine, "generate", self._sample)

    def by_method(self) -> dict[str, Hook]:
        return {
            **super().by_method(),
            "_generate_and_score_completions": self._generate,
            "_calculate_rewards": self._calculate_rewards,
            "_compute_loss": self._compute_loss,
            "_get_per_token_logps_and_entropies": self._score,
        }

    def _begin(self) -> None:
        args = self._trainer.args
        self._keys = UpdateKeys(calls_per_rollout=args.steps_per_generation * args.num_iterations)
        self._labels = RolloutLabels(self._trainer)
        self._loss_inputs: dict[str, Any] | None = None
        self._is_scored = True

    def newest_step(self) -> int:
        return self._keys.rollout_step if self._is_scored else int(self._trainer.state.global_step)

    def _log_scalars(self, monitor: Monitor) -> None:
        if self._is_scored:
            super()._log_scalars(monitor)
        else:
            self._log_all(monitor)

    def _generate(self, generate: Hook, *args: Any, **kwargs: Any) -> Any:
        if (monitor := self._training_monitor) is None:
            return generate(*args, **kwargs)
        self._labels.begin()
        output = generate(*args, **kwargs)
        self._keys.begin_rollout(self._trainer.state.global_step)
        return monitor.error_guard.guard(lambda: self._labels.added_to(output), otherwise=output)

    def _sample(self, generate: Hook, *args: Any, **kwargs: Any) -> Any:
        """Keep the log-probs that vLLM returns, which RLOOTrainer drops."""
        output = generate(*args, **kwargs)
        if (monitor := self._training_monitor) is not None:
            self._labels.sampled = monitor.error_guard.guard(lambda: rows_of(output[2]), otherwise=None)
        return output

    def _calculate_rewards(self, calculate: Hook, *args: Any, **kwargs: Any) -> Any:
        self._labels.rewards = rewards = calculate(*args, **kwargs)
        self._labels.completions = kwargs.get("completion_ids_list", args[3] if len(args) > 3 else None)
        return rewards

    def _compute_loss(self, compute: Hook, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        if self._training_monitor is None:
            return compute(model, inputs, *args, **kwargs)
        # A copy: what `_score` takes out of the loss is still there when the rollouts are used again.
        self._loss_inputs = inputs = dict(inputs)
        try:
            loss = compute(model, inputs, *args, **kwargs)
            self._is_scored = self._loss_inputs is None
        finally:
            self._loss_inputs = None
        if not self._is_scored:
            what = f"the loss of {type(self._trainer).__name__} does not call _get_per_token_logps_and_entropies"
            warn_once(what, f"{what}: trmon reports {SCALARS_ONLY}")
        return loss

    def _score(self, score: Hook, *args: Any, **kwargs: Any) -> Any:
        """Log-probs are asked for while rollouts are generated and, first of all, while their loss is computed."""
        scored = score(*args, **kwargs)
        inputs, self._loss_inputs = self._loss_inputs, None
        if (monitor := self._training_monitor) is None:
            return scored
        if inputs is None:
            self._labels.note_score(scored)
            return scored
        return monitor.error_guard.guard(lambda: self._decide(monitor, inputs, scored), otherwise=scored)

    def _decide(self, monitor: Monitor, inputs: dict[str, Any], scored: Any) -> Any:
        """Report a micro-batch; return its log-probs and entropies without the rows that the decision rejects."""
        trainer, pi = self._trainer, scored[0].detach()
        mu = inputs.get("sampling_per_token_logps", inputs.get(SAMPLED))
        old = inputs.get("old_per_token_logps", inputs.get(OLD_LOGPS))
        generated_at, update, n_chunks = self._keys.next(trainer.state.global_step, chunks=self._chunks)
        mask = inputs["completion_mask"]
        # vLLM's weights are those of its last synchronisation; which ones a rollout_func samples from is unknown.
        version = trainer._last_loaded_step if trainer.use_vllm else generated_at if mu is None else None
        decision = monitor.log_batch(
            step=generated_at,
            update=update,
            chunks=n_chunks,
            rollout_logprobs=mu,
            # TRL itself takes pi for pi_old where it has not scored the rollouts before; without mu that says nothing.
            old_logprobs=pi if old is None and mu is not None else old,
            logprobs=pi,
            ref_logprobs=inputs.get("ref_per_token_logps"),
            token_ids=ids_like(inputs.get("completion_ids"), mask),
            truncated=inputs.get(TRUNCATED),
            mask=mask * inputs["tool_mask"] if "tool_mask" in inputs else mask,
            advantages=inputs["advantages"],
            rewards=inputs.get(REWARDS),
            group_ids=inputs.get(GROUP_IDS),
            versions=pi.new_full(pi.shape[:1], version, dtype=int) if version is not None else None,
            trainer_version=trainer.state.global_step,
            old_version=generated_at,
        )
        return restrict_to_accepted(decision, inputs, scored) if decision.is_enforced else scored
