"""The trainer: a rollout, its report, the updates on it and, every ten updates, a clean evaluation."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any, Protocol

import torch
from torch import Tensor

from trmon.lab.grpo.experiment_config import ExperimentConfig, PpoReference
from trmon.lab.grpo.mismatched_engine import MismatchedEngine
from trmon.lab.grpo.rollout_batch import RolloutBatch, build_batch, ppo_clip_loss
from trmon.lab.grpo.supervised_start import NOT_EVALUATED, CleanEvaluation, EvaluatedPolicy, supervised_start
from trmon.lab.grpo.tasks import TASK_FAMILIES
from trmon.lab.grpo.token_policy import ResponseScores, TokenPolicy, seeded_policy

ENGINE_STREAM, LEARNER_STREAM = 1, 2
"""The streams of a run's randomness: sampling in the rollout engine; prompts and minibatches."""


@dataclass(frozen=True, eq=False, kw_only=True)
class TrainerState:
    """A copy of a trainer's state before `next_update`.

    `weights` and `optimizer` are what was learned, `published` the versions that a lagging engine may still load,
    oldest first; the streams are states of generators; `evaluated` is the evaluation in force. The engine loads its
    weights at every update, and has no other state.
    """

    next_update: int
    weights: Mapping[str, Tensor]
    optimizer: dict[str, Any]
    published: tuple[tuple[int, dict[str, Tensor]], ...]
    learner_stream: Tensor
    engine_stream: Tensor
    evaluated: EvaluatedPolicy

    def rolled_back(self, checkpoint: TrainerState) -> TrainerState:
        """Return the state with what the run had learned at a checkpoint, while data, ramps and time go on.

        The rollout engine restarts with the weights of the checkpoint: older versions are gone.
        The next update evaluates.
        """
        return replace(
            self,
            weights=checkpoint.weights,
            optimizer=checkpoint.optimizer,
            published=(),
            evaluated=NOT_EVALUATED,
        )

    def reseeded(self, seed: int) -> TrainerState:
        """Return the state with the streams of another seed."""
        return replace(
            self,
            learner_stream=random_stream(seed, LEARNER_STREAM).get_state(),
            engine_stream=random_stream(seed, ENGINE_STREAM).get_state(),
        )


def random_stream(seed: int, stream: int, *, device: torch.device | None = None) -> torch.Generator:
    """Return the generator of one stream of a run's randomness, on a device; default: the CPU."""
    return torch.Generator(device or "cpu").manual_seed(seed * 1000 + stream)


class DecisionPort(Protocol):
    """The decision on B sequences."""

    @property
    def mask(self) -> Tensor:
        """True for the sequences that stay in the loss, [B]; all true if the monitor only observes."""

    @property
    def sequence_weights(self) -> Tensor:
        """The weight of each sequence in the loss, [B] float32: 0 or 1 as `mask` unless the policy is soft."""

    @property
    def mask_rate(self) -> float:
        """Share of the sequences that the policy rejects, whether or not they are masked."""

    @property
    def signals(self) -> Mapping[str, float]:
        """The signals of the sequences, by name."""

    def clean(self, rollout_logprobs: Tensor, logprobs: Tensor) -> Tensor:
        """Return the rollout log-probs [B, T], those of rejected sequences replaced by detached `logprobs`."""


class MonitorPort(Protocol):
    """The interface that a trainer reports to."""

    def log_batch(
        self,
        *,
        step: int,
        mask: Tensor,
        rollout_logprobs: Tensor,
        old_logprobs: Tensor,
        logprobs: Tensor,
        advantages: Tensor,
        rewards: Tensor,
        group_ids: Tensor,
        versions: Tensor,
        truncated: Tensor | None = None,
        trainer_version: int,
        old_version: int,
        update: int | None = None,
        chunks: int | None = None,
        scalars: Mapping[str, float] | None = None,
    ) -> DecisionPort:
        """Report B sequences and return the decision on them; `chunks` is the number of calls per (step, update)."""

    def log_scalars(self, step: int, values: Mapping[str, float], /) -> None:
        """Report the trainer's own metrics of a step."""


EVALUATE_EVERY = 10
CPU = torch.device("cpu")


@dataclass(frozen=True, slots=True)
class UpdateOutcome:
    """One update: the mean reward that the learner saw, the share of exact answers, the largest gradient norm, and the
    latest clean evaluation.
    """

    update: int
    reward: float
    exact: float
    grad_norm: float
    evaluated: EvaluatedPolicy


def train_experiment(
    config: ExperimentConfig, monitor: MonitorPort, *, start: TrainerState | None = None, device: torch.device = CPU
) -> Iterator[UpdateOutcome]:
    """Train as configured, report to the monitor, and yield every update as it ends.

    Args: start: the state of another trainer of the same policy, from whose next update the run goes on; device: what
    the policies compute on; a run repeats on a device of the same kind.
    """
    trainer = GrpoTrainer(config, monitor, device=device)
    if start is not None:
        trainer.restore(start)
    for update in range(0 if start is None else start.next_update, config.n_updates):
        yield trainer.run_update(update)


class GrpoTrainer:
    """The learner and its rollout engine, on one thread. Every update makes one version of the weights.

    The monitor gets each rollout before the updates (`update` None), the last optimizer step's sequences with the
    moved policy, and the step's scalars. Sequences count in the loss with the smaller weight of both reports.
    """

    def __init__(self, config: ExperimentConfig, monitor: MonitorPort, *, device: torch.device = CPU) -> None:
        torch.set_num_threads(1)  # sums of several threads are not the same again
        self._config = config
        self._monitor = monitor
        self._device = device
        self._task = TASK_FAMILIES[config.task]
        self._policy = self._new_policy()
        start = supervised_start(
            config.task,
            config.architecture,
            experts_per_token=config.experts_per_token,
            seed=config.warm_start_seed,
            exact=config.warm_start_exact,
        )
        self._policy.load_state_dict(start.weights)
        self._optimizer = torch.optim.Adam(self._policy.parameters(), lr=config.learning_rate.at(0), foreach=True)
        lag = config.engine.lag
        self._published: deque[tuple[int, dict[str, Tensor]]] = deque(maxlen=round(max(lag.start, lag.end)) + 1)
        self._engine_generator = random_stream(config.seed, ENGINE_STREAM, device=device)
        self._engine = MismatchedEngine(
            self._new_policy(), limit=self._task.response_limit, generator=self._engine_generator
        )
        self._generator = random_stream(config.seed, LEARNER_STREAM)
        self._evaluation = CleanEvaluation(self._task)
        self._evaluated = NOT_EVALUATED

    def run_update(self, update: int) -> UpdateOutcome:
        """Evaluate if it is due, roll out, report, and train on the rollout."""
        if update % EVALUATE_EVERY == 0 or self._evaluated is NOT_EVALUATED:
            self._evaluated = self._evaluation.evaluate(self._policy)
        batch = self._roll_out(update)
        scalars = {"lr": self._config.learning_rate.at(update), "exact": batch.exact, **batch.routing}
        rows = torch.arange(len(batch), device=self._device)
        decision = self._report(batch, rows, update=update, logprobs=batch.old_logprobs, scalars=scalars)
        losses, norms = self._train(batch, update, weights=decision.sequence_weights)
        grad_norm = max(norms, key=lambda norm: math.inf if math.isnan(norm) else norm)
        self._monitor.log_scalars(update, {"grad_norm": grad_norm, "loss": losses[-1]})
        return UpdateOutcome(update, batch.rewards.mean().item(), batch.exact, grad_norm, self._evaluated)

    def capture(self, next_update: int) -> TrainerState:
        """Return a copy of the state before an update."""
        return TrainerState(
            next_update=next_update,
            weights=self._policy.copied_weights(),
            optimizer=deepcopy(self._optimizer.state_dict()),
            published=tuple(self._published),
            learner_stream=self._generator.get_state(),
            engine_stream=self._engine_generator.get_state(),
            evaluated=self._evaluated,
        )

    def restore(self, state: TrainerState) -> None:
        """Take over a copied state, also one of a trainer with another configuration of the same policy."""
        self._policy.load_state_dict(state.weights)
        # Loading keeps the given tensors, which the optimizer then changes in place.
        self._optimizer.load_state_dict(deepcopy(state.optimizer))
        self._published.clear()
        self._published.extend(state.published)
        self._generator.set_state(state.learner_stream)
        self._engine_generator.set_state(state.engine_stream)
        self._evaluated = state.evaluated

    def _new_policy(self) -> TokenPolicy:
        return seeded_policy(
            self._config.architecture,
            n_symbols=self._task.n_symbols,
            experts_per_token=self._config.experts_per_token,
            seed=0,
        ).to(self._device)

    def _roll_out(self, update: int) -> RolloutBatch:
        config, mismatch = self._config, self._config.engine
        self._published.append((update, self._policy.copied_weights()))
        lag = max(0, round(mismatch.lag.at(update)))
        version, weights = self._published[max(0, len(self._published) - 1 - lag)]
        self._engine.load(weights, version=version, weight_format=mismatch.format_at(update))
        prompts = self._task.draw(config.n_prompts, generator=self._generator).to(self._device)
        limit = config.faults.token_limit if config.faults else None
        sampled = self._engine.sample(
            prompts,
            copies=config.n_responses,
            mismatch=mismatch,
            update=update,
            limit=None if limit is None else round(limit.at(update)),
        )
        with torch.no_grad():
            replayed = sampled.experts if config.router_replay else None
            old = self._policy.score(sampled.prompts.tokens, sampled.tokens, replayed=replayed)
        return build_batch(sampled, old, config=config, update=update, generator=self._generator)

    def _train(self, batch: RolloutBatch, update: int, *, weights: Tensor) -> tuple[list[float], list[float]]:
        """Return the loss and the gradient norm of each optimizer step; one without a finite gradient is left out.

        Args: weights [B]: those of the rollout's sequences in the loss.
        """
        config, losses, norms = self._config, list[float](), list[float]()
        for group in self._optimizer.param_groups:
            group["lr"] = config.learning_rate.at(update)
        n_steps = config.n_epochs * config.n_minibatches
        for _ in range(config.n_epochs):
            order = torch.randperm(len(batch), generator=self._generator).to(self._device)
            for rows in order.chunk(config.n_minibatches):
                scored = self._score(batch, rows)
                kept = weights[rows]
                if len(losses) == n_steps - 1:
                    logprobs = scored.logprobs.detach()
                    decision = self._report(batch, rows, update=update, logprobs=logprobs, minibatch=n_steps - 1)
                    kept = torch.minimum(kept, decision.sequence_weights)
                loss, norm = self._step(batch, rows, scored, update=update, weights=kept)
                losses.append(loss)
                norms.append(norm)
        return losses, norms

    def _score(self, batch: RolloutBatch, rows: Tensor) -> ResponseScores:
        sampled = batch.sampled
        replayed = sampled.experts[rows] if self._config.router_replay and sampled.experts is not None else None
        return self._policy.score(sampled.prompts.tokens[rows], sampled.tokens[rows], replayed=replayed)

    def _step(
        self, batch: RolloutBatch, rows: Tensor, scored: ResponseScores, *, update: int, weights: Tensor
    ) -> tuple[float, float]:
        config, mask = self._config, batch.sampled.mask[rows]
        is_rollout = config.ppo_reference is PpoReference.ROLLOUT
        reference = (batch.sampled.logprobs if is_rollout else batch.old_logprobs)[rows]
        advantages = batch.advantages[rows]
        loss = ppo_clip_loss(
            scored.logprobs, reference, advantages=advantages, mask=mask, clip=config.clip, weights=weights
        )
        if coefficient := config.entropy_coefficient.at(update):
            loss = loss - coefficient * scored.entropy[mask].mean()
        self._optimizer.zero_grad()
        torch.autograd.backward(loss)
        limit = math.inf if config.max_grad_norm is None else config.max_grad_norm
        norm = torch.nn.utils.clip_grad_norm_(self._policy.parameters(), limit, foreach=True).item()
        if math.isfinite(norm):
            self._optimizer.step()
        return loss.item(), norm

    def _report(
        self,
        batch: RolloutBatch,
        rows: Tensor,
        *,
        update: int,
        logprobs: Tensor,
        minibatch: int | None = None,
        scalars: dict[str, float] | None = None,
    ) -> DecisionPort:
        sampled = batch.sampled
        return self._monitor.log_batch(
            step=update,
            update=minibatch,
            chunks=1,
            mask=sampled.mask[rows],
            rollout_logprobs=sampled.logprobs[rows],
            old_logprobs=batch.old_logprobs[rows],
            logprobs=logprobs,
            advantages=batch.advantages[rows],
            rewards=batch.rewards[rows],
            group_ids=batch.group_ids[rows],
            versions=torch.full((len(rows),), sampled.version),
            truncated=sampled.truncated[rows],
            trainer_version=update,
            old_version=update,
            scalars=scalars,
        )
