"""Report from GRPOTrainer and RLOOTrainer, which generate rollouts and train on them in turn."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from trmon_client.config.settings import ClientSettings
from trmon_client.integrations.method_hooks import Hook
from trmon_client.integrations.trl.accepted_rows import restrict_to_accepted
from trmon_client.integrations.trl.rollout_labels import RolloutLabels
from trmon_client.integrations.trl.training_hooks import TrainingHooks
from trmon_client.integrations.trl.update_keys import UpdateKeys
from trmon_client.monitor import Monitor


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

    def by_method(self) -> dict[str, Hook]:
        """Return the wrapper of each method."""
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

    def _scalars_step(self) -> int:
        return self._keys.rollout_step

    def _generate(self, generate: Hook, inputs: Any) -> Any:
        if (monitor := self._training_monitor) is None:
            return generate(inputs)
        self._labels.begin()
        output = generate(inputs)
        self._keys.begin_rollout(self._trainer.state.global_step)
        return monitor.error_guard.guard(lambda: self._labels.added_to(output), otherwise=output)

    def _calculate_rewards(self, calculate: Hook, *args: Any, **kwargs: Any) -> Any:
        self._labels.rewards = rewards = calculate(*args, **kwargs)
        return rewards

    def _compute_loss(self, compute: Hook, model: Any, inputs: Any) -> Any:
        if self._training_monitor is None:
            return compute(model, inputs)
        # A copy: what `_score` takes out of the loss is still there when the rollouts are used again.
        self._loss_inputs = inputs = dict(inputs)
        try:
            return compute(model, inputs)
        finally:
            self._loss_inputs = None

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
        mu, old = inputs.get("sampling_per_token_logps"), self._labels.old_of(inputs)
        key = self._keys.next(trainer.state.global_step, chunks=self._chunks)
        mask = inputs["completion_mask"]
        decision = monitor.log_batch(
            step=key.step,
            update=key.update,
            chunks=key.chunks,
            rollout_logprobs=mu,
            # TRL itself takes pi for pi_old where it has not scored the rollouts before; without mu that says nothing.
            old_logprobs=pi if old is None and mu is not None else old,
            logprobs=pi,
            mask=mask * inputs["tool_mask"] if "tool_mask" in inputs else mask,
            advantages=inputs["advantages"],
            versions=pi.new_full(pi.shape[:1], self._sampled_with, dtype=int),
            trainer_version=trainer.state.global_step,
            old_version=key.step,
            **self._labels.of(inputs),
        )
        return restrict_to_accepted(decision, inputs, scored) if decision.is_enforced else scored

    @property
    def _sampled_with(self) -> int:
        """The optimizer step whose weights sampled: that of vLLM's last synchronisation, else of the generation."""
        return int(getattr(self._trainer, "_last_loaded_step", self._keys.rollout_step))
