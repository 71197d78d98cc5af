"""Training: GRPO on the sorting task, reporting through the monitor's two lines."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from trmon.lab.testbed.batch import Batch
from trmon.lab.testbed.config import LabConfig
from trmon.lab.testbed.injection import LARGEST_LAG, Fault
from trmon.lab.testbed.loss import clipped_loss, entropy_bonus
from trmon.lab.testbed.monitor_port import DecisionPort, MonitorPort
from trmon.lab.testbed.policy import PolicyNetwork, Weights, policy_with_weights
from trmon.lab.testbed.rewards import judge_rollout
from trmon.lab.testbed.rollout import RolloutEngine
from trmon.lab.testbed.task import draw_prompts
from trmon.lab.testbed.warmstart import WarmStart, warm_start


@dataclass(frozen=True, eq=False)
class StepResult:
    """One step: mean `reward`, share of `exact` answers, the largest gradient norm of its updates, the share of
    tokens that met another expert in the rollout than in training, the rollout's version lag, and the decision
    on the whole rollout before the updates.
    """

    step: int
    reward: float
    exact: float
    grad_norm: float
    router_flip_rate: float
    version_lag: int
    decision: DecisionPort


def prepare_training(config: LabConfig) -> WarmStart:
    """Return the warm start of a run and set torch's threads; call it early to keep its time out of `run_training`."""
    if config.n_threads is not None:
        torch.set_num_threads(config.n_threads)
    return warm_start(config.seed)


def run_training(config: LabConfig, monitor: MonitorPort) -> Iterator[StepResult]:
    """Train as configured, report to the monitor, and yield every step as it ends."""
    trainer = Trainer(config, monitor, start=prepare_training(config))
    for step in range(config.n_steps):
        yield trainer.step(step)


class Trainer:
    """The learner and its rollout engine; a step is one rollout and the updates on it, and creates one version."""

    def __init__(self, config: LabConfig, monitor: MonitorPort, *, start: WarmStart) -> None:
        self._config = config
        self._monitor = monitor
        self._policy = policy_with_weights(start.weights)
        self._optimizer = torch.optim.Adam(self._policy.parameters(), lr=config.learning_rate)
        self._published: deque[tuple[int, Weights]] = deque(maxlen=LARGEST_LAG + 1)
        self._engine = RolloutEngine(generator=_generator(config.seed, stream=1))
        self._generator = _generator(config.seed, stream=2)

    def step(self, step: int) -> StepResult:
        """Roll out, report, update."""
        fault = self._config.fault(step)
        batch = self._roll_out(step, fault)
        exact = batch.exact.float().mean().item()
        learning_rate = fault.learning_rate(self._config.learning_rate)
        scalars = {"lr": learning_rate, "exact": exact, "router_flip_rate": batch.router_flip_rate}
        decision = self._report(batch, step=step, logprobs=batch.old_logprobs, scalars=scalars)
        grad_norm = self._update(batch, step=step, fault=fault)
        self._monitor.log_scalars(step, {"grad_norm": grad_norm})
        return StepResult(
            step=step,
            reward=batch.rewards.mean().item(),
            exact=exact,
            grad_norm=grad_norm,
            router_flip_rate=batch.router_flip_rate,
            version_lag=step - int(batch.versions.min()),
            decision=decision,
        )

    def _roll_out(self, step: int, fault: Fault) -> Batch:
        self._published.append((step, self._policy.weights()))
        version, weights = self._published[max(0, len(self._published) - 1 - fault.lag)]
        self._engine.load(weights, version=version, bits=fault.weight_bits)
        prompts = draw_prompts(self._config.n_prompts, generator=self._generator).repeat(self._config.n_responses)
        rollout = self._engine.generate(prompts, fault=fault)
        with torch.no_grad():
            scored = self._policy.score(prompts, rollout.tokens)
        rewards = judge_rollout(rollout, n_responses=self._config.n_responses, fault=fault, generator=self._generator)
        return Batch.of(rollout, learner=scored, rewards=rewards)

    def _update(self, batch: Batch, *, step: int, fault: Fault) -> float:
        """Return the largest gradient norm of the step's updates; NaN if one was NaN."""
        for group in self._optimizer.param_groups:
            group["lr"] = fault.learning_rate(self._config.learning_rate)
        order = torch.randperm(len(batch), generator=self._generator)
        minibatches = [batch[rows] for rows in order.chunk(self._config.n_minibatches)]
        norms = [self._learn(part, step=step, update=update, fault=fault) for update, part in enumerate(minibatches)]
        return float(np.max(norms))

    def _learn(self, batch: Batch, *, step: int, update: int, fault: Fault) -> float:
        """Return the gradient norm of an update, which is left out where that is not finite, as verl does."""
        scored = self._policy.score(batch.prompts, batch.tokens)
        decision = self._report(batch, step=step, logprobs=scored.logprobs, update=update)
        loss = clipped_loss(batch, scored.logprobs, decision=decision, config=self._config)
        if fault.entropy_bonus:
            loss = loss + entropy_bonus(batch, scored.entropy, coefficient=fault.entropy_bonus)
        self._optimizer.zero_grad()
        torch.autograd.backward(loss)
        norm = _grad_norm(self._policy)
        if math.isfinite(norm):
            self._optimizer.step()
        return norm

    def _report(
        self,
        batch: Batch,
        *,
        step: int,
        logprobs: Tensor,
        update: int | None = None,
        scalars: dict[str, float] | None = None,
    ) -> DecisionPort:
        return self._monitor.log_batch(
            step=step,
            update=update,
            chunks=1,
            mask=batch.mask,
            rollout_logprobs=batch.rollout_logprobs,
            old_logprobs=batch.old_logprobs,
            logprobs=logprobs,
            advantages=batch.advantages,
            rewards=batch.rewards,
            group_ids=batch.group_ids,
            versions=batch.versions,
            trainer_version=step,
            old_version=step,
            scalars=scalars,
            **({} if batch.truncated is None else {"truncated": batch.truncated}),
        )


def _grad_norm(policy: PolicyNetwork) -> float:
    norms = [parameter.grad.norm() for parameter in policy.parameters() if parameter.grad is not None]
    return float(torch.stack(norms).norm())


def _generator(seed: int, *, stream: int) -> torch.Generator:
    """Return one generator for each stream of a run's randomness."""
    return torch.Generator().manual_seed(seed * 1000 + stream)
