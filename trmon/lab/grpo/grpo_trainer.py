"""The trainer: a rollout, its report, the updates on it and, every ten updates, a clean evaluation."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

import msgspec
import torch
from torch import Tensor

import trmon_client as trmon
from trmon.domain.errors import InvalidInput
from trmon.lab.grpo.experiment_config import ExperimentConfig, PpoReference
from trmon.lab.grpo.mismatched_engine import MismatchedEngine
from trmon.lab.grpo.rollout_batch import RolloutBatch, build_batch, ppo_clip_loss
from trmon.lab.grpo.supervised_start import NOT_EVALUATED, CleanEvaluation, EvaluatedPolicy, supervised_start
from trmon.lab.grpo.tasks import TASK_FAMILIES, TokenTask
from trmon.lab.grpo.token_policy import ARCHITECTURES, Architecture, ResponseScores, TokenPolicy, seeded_policy
from trmon_client import Monitor
from trmon_client.batch_decision import BatchDecision

ENGINE_STREAM, LEARNER_STREAM = 1, 2
"""The streams of a run's randomness: sampling in the rollout engine; prompts and minibatches."""


def random_stream(seed: int, stream: int) -> torch.Generator:
    """Return the generator of one stream of a run's randomness."""
    return torch.Generator().manual_seed(seed * 1000 + stream)


EVALUATE_EVERY = 10


@dataclass(frozen=True, slots=True)
class UpdateOutcome:
    """One update: mean reward, share of exact answers, largest gradient norm, and the latest clean evaluation."""

    update: int
    reward: float
    exact: float
    grad_norm: float
    evaluated: EvaluatedPolicy


class GrpoTrainer:
    """The learner and its rollout engine, on one thread. Every update makes one version of the weights.

    The monitor gets each rollout before the updates (`update` None), the last optimizer step's sequences with the
    moved policy, and the step's scalars. Sequences count in the loss with the smaller weight of both reports.
    """

    tasks: ClassVar[Mapping[str, TokenTask]] = TASK_FAMILIES
    architectures: ClassVar[Mapping[str, Architecture]] = ARCHITECTURES

    def __init__(self, config: ExperimentConfig, monitor: Monitor) -> None:
        torch.set_num_threads(1)  # sums of several threads are not the same again
        self._config = config
        self._monitor = monitor
        self._task = self.tasks[config.task]
        self._policy = self._new_policy()
        start = supervised_start(
            self._task,
            self.architectures[config.architecture],
            experts_per_token=config.experts_per_token,
            seed=config.warm_start_seed,
            exact=config.warm_start_exact,
        )
        self._policy.load_state_dict(start.weights)
        self._optimizer = torch.optim.Adam(self._policy.parameters(), lr=config.learning_rate.at(0), foreach=True)
        lag = config.engine.lag
        self._published: deque[tuple[int, dict[str, Tensor]]] = deque(maxlen=round(max(lag.start, lag.end)) + 1)
        self._engine_generator = random_stream(config.seed, ENGINE_STREAM)
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
        config, mismatch = self._config, self._config.engine
        self._published.append((update, self._policy.copied_weights()))
        lag = max(0, round(mismatch.lag.at(update)))
        version, weights = self._published[max(0, len(self._published) - 1 - lag)]
        self._engine.load(weights, version=version, weight_format=mismatch.format_at(update))
        prompts = self._task.draw(config.n_prompts, generator=self._generator)
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
        batch = build_batch(sampled, old, config=config, update=update, generator=self._generator)
        scalars = {"lr": self._config.learning_rate.at(update), "exact": batch.exact, **batch.routing}
        rows = torch.arange(len(batch))
        decision = self._report(batch, rows, update=update, logprobs=batch.old_logprobs, scalars=scalars)
        losses, norms = self._train(batch, update, weights=decision.sequence_weights)
        grad_norm = max(norms, key=lambda norm: math.inf if math.isnan(norm) else norm)
        self._monitor.log_scalars(update, {"grad_norm": grad_norm, "loss": losses[-1]})
        return UpdateOutcome(update, batch.rewards.mean().item(), batch.exact, grad_norm, self._evaluated)

    def _new_policy(self) -> TokenPolicy:
        return seeded_policy(
            self.architectures[self._config.architecture],
            n_symbols=self._task.n_symbols,
            experts_per_token=self._config.experts_per_token,
            seed=0,
        )

    def _train(self, batch: RolloutBatch, update: int, *, weights: Tensor) -> tuple[list[float], list[float]]:
        """Return the loss and the gradient norm of each optimizer step; one without a finite gradient is left out.

        Args: weights [B]: those of the rollout's sequences in the loss.
        """
        config, losses, norms = self._config, list[float](), list[float]()
        for group in self._optimizer.param_groups:
            group["lr"] = config.learning_rate.at(update)
        n_steps = config.n_epochs * config.n_minibatches
        for _ in range(config.n_epochs):
            order = torch.randperm(len(batch), generator=self._generator)
            for rows in order.chunk(config.n_minibatches):
                sampled = batch.sampled
                replayed = sampled.experts[rows] if self._config.router_replay and sampled.experts is not None else None
                scored = self._policy.score(sampled.prompts.tokens[rows], sampled.tokens[rows], replayed=replayed)
                kept = weights[rows]
                if len(losses) == n_steps - 1:
                    logprobs = scored.logprobs.detach()
                    decision = self._report(batch, rows, update=update, logprobs=logprobs, minibatch=n_steps - 1)
                    kept = torch.minimum(kept, decision.sequence_weights)
                loss, norm = self._step(batch, rows, scored, update=update, weights=kept)
                losses.append(loss)
                norms.append(norm)
        return losses, norms

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
    ) -> BatchDecision:
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


def train_experiment(config: ExperimentConfig, monitor: Monitor) -> Iterator[UpdateOutcome]:
    """Train as configured, report to the monitor, and yield each update."""
    yield from map(GrpoTrainer(config, monitor).run_update, range(config.n_updates))


def train_experiment_watched(
    config: ExperimentConfig,
    *,
    url: str | None,
    project: str,
    name: str | None,
    train: Callable[[ExperimentConfig, Monitor], Iterator[UpdateOutcome]] = train_experiment,
) -> Generator[UpdateOutcome, None, None]:
    """Train as configured, reporting to the service at `url`, or to a spool, and yield every update.

    Args: name: default the config's. Closing the iterator ends the run early.
    Errors: InvalidInput if the client rejects the name, the address or a variable.
    """
    declared = msgspec.to_builtins(config)
    try:
        monitor = trmon.init(
            project=project,
            run=name or config.run_name,
            url=url,
            config=declared,
            owner="demo",
            tags=["lab", config.mechanism],
        )
    except ValueError as error:
        raise InvalidInput("lab", str(error)) from error
    with monitor:
        yield from train(config, monitor)
        # At its normal end nothing may be left in the spool, however slow the machine is.
        monitor.close(timeout=None)
