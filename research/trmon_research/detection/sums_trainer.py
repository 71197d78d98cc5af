"""The learner: GRPO with PPO's clipping on running sums, reporting each update to a monitor."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from trmon_research.detection.faults import LARGEST_LAG, FaultEffect, InjectedFault, effect_of
from trmon_research.detection.numpy_engine import NumpyEngine, SampledResponses, Weights
from trmon_research.detection.running_sums import FILLER, MAX_DIGITS, MAX_RESPONSE, SumPrompts, draw_sums, rewards_of
from trmon_research.detection.sums_model import CONTEXT, SumsModel

CLIP = 0.2
WARM_TARGET, WARM_BATCH, WARM_LR, WARM_LIMIT = 0.15, 64, 5e-3, 3000
BALANCE = 0.05
SMALLEST_STD = 1e-4
WARM_STARTS = 10
"""How many warm starts there are; a run takes that of its seed modulo this."""


class SumsMonitor(Protocol):
    """What the trainer reports to."""

    def log_batch(self, *, step: int, **inputs: Any) -> object:
        """Report the sequences of one update."""

    def log_scalars(self, step: int, values: dict[str, float], /) -> None:
        """Report the trainer's own numbers of a step."""


@dataclass(frozen=True, slots=True)
class SumsConfig:
    """One run; its fault begins at `onset_step` and reaches its full severity after `ramp_steps`."""

    fault: InjectedFault
    seed: int
    n_steps: int = 300
    onset_step: int = 80
    ramp_steps: int = 20
    n_prompts: int = 6
    n_responses: int = 8
    n_minibatches: int = 2
    learning_rate: float = 2e-4

    def effect(self, step: int) -> FaultEffect:
        """Return the effect of the fault at a step."""
        severity = min(1.0, max(0.0, (step - self.onset_step + 1) / self.ramp_steps))
        return effect_of(self.fault, severity, seed=self.seed)


@dataclass(frozen=True, slots=True)
class SumsStep:
    """One step: the mean reward by the true verifier and as the trainer saw it, the largest gradient norm, and the
    mean k3 of the engines' mismatch.
    """

    step: int
    true_reward: float
    reward: float
    grad_norm: float
    k3: float


class SumsTrainer:
    """One run; `steps` trains it."""

    def __init__(self, config: SumsConfig, monitor: SumsMonitor) -> None:
        self._config = config
        self._monitor = monitor
        self._rng = np.random.default_rng([config.seed, list(InjectedFault).index(config.fault)])
        self._model = SumsModel(0)
        self._model.load_state_dict(warm_weights(config.seed % WARM_STARTS))
        self._optimizer = torch.optim.Adam(self._model.parameters(), lr=config.learning_rate, foreach=True)
        self._engine = NumpyEngine(self._rng)
        self._history: deque[tuple[int, Weights]] = deque(maxlen=LARGEST_LAG + 1)

    def steps(self) -> Iterator[SumsStep]:
        """Train, and yield every step."""
        for step in range(self._config.n_steps):
            yield self._step(step)

    def _step(self, step: int) -> SumsStep:
        config, effect = self._config, self._config.effect(step)
        weights = {name: value.detach().numpy().copy() for name, value in self._model.named_parameters()}
        self._history.append((step, weights))
        version, lagged = self._history[max(0, len(self._history) - 1 - effect.lag)]
        self._engine.load(lagged, bits=effect.weight_bits)
        prompts = draw_sums(config.n_prompts, self._rng).repeat(config.n_responses)
        sampled = self._engine.sample(prompts, effect)
        true_rewards = rewards_of(sampled.tokens, sampled.lengths, prompts)
        is_broken = self._rng.random(len(true_rewards)) < effect.broken_verdicts
        paid = np.where(is_broken, 0.0, true_rewards)
        paid = paid + effect.length_bonus * sampled.lengths / MAX_RESPONSE
        learner = LearnerBatch.of(prompts, sampled, paid, n_responses=config.n_responses, version=version)
        with torch.no_grad():
            old, routing = self._model(learner.contexts)
            learner.old_logprobs = taken(old, learner.tokens)
        flips = (routing.argmax(dim=-1) != torch.from_numpy(sampled.experts))[learner.mask]
        lr = config.learning_rate * effect.lr_factor
        made = [self._update(learner, rows, step, i, effect, lr) for i, rows in enumerate(self._minibatches())]
        scalars = {name: float(np.mean([one[name] for one in made])) for name in ("loss", "entropy")}
        grad_norm = float(np.max([one["grad_norm"] for one in made]))
        flipped = flips.float().mean().item()
        self._monitor.log_scalars(step, scalars | {"grad_norm": grad_norm, "lr": lr, "router_flip_rate": flipped})
        d = (learner.old_logprobs - learner.rollout_logprobs)[learner.mask].double()
        k3 = (d.expm1() - d).mean().item()
        return SumsStep(step, float(true_rewards.mean()), float(paid.mean()), grad_norm, k3)

    def _minibatches(self) -> list[Tensor]:
        config = self._config
        order = torch.from_numpy(self._rng.permutation(config.n_prompts * config.n_responses))
        return list(order.chunk(config.n_minibatches))

    def _update(
        self, batch: LearnerBatch, rows: Tensor, step: int, update: int, effect: FaultEffect, lr: float
    ) -> dict[str, float]:
        mask, advantages = batch.mask[rows], batch.advantages[rows]
        outputs, _ = self._model(batch.contexts[rows])
        logprobs = taken(outputs, batch.tokens[rows])
        self._monitor.log_batch(
            step=step,
            update=update,
            chunks=1,
            mask=mask,
            rollout_logprobs=batch.rollout_logprobs[rows],
            old_logprobs=batch.old_logprobs[rows],
            logprobs=logprobs.detach(),
            advantages=advantages,
            rewards=batch.rewards[rows],
            group_ids=batch.group_ids[rows],
            versions=torch.full((len(rows),), batch.version),
            truncated=batch.truncated[rows],
            trainer_version=step,
            old_version=step,
        )
        ratio = torch.where(mask, logprobs - batch.old_logprobs[rows], 0.0).exp()
        gain = torch.minimum(ratio * advantages[:, None], ratio.clamp(1 - CLIP, 1 + CLIP) * advantages[:, None])
        entropy = -(outputs.exp() * outputs).sum(dim=-1)[mask].mean()
        loss = -gain[mask].mean() - effect.entropy_weight * entropy
        if effect.is_nan:
            loss = loss * float("nan")
        self._optimizer.zero_grad()
        torch.autograd.backward(loss)
        norm = torch.nn.utils.get_total_norm([p.grad for p in self._model.parameters() if p.grad is not None])
        for group in self._optimizer.param_groups:
            group["lr"] = lr
        self._optimizer.step()
        return {"loss": loss.item(), "entropy": entropy.item(), "grad_norm": norm.item()}


@dataclass(eq=False)
class LearnerBatch:
    """A rollout as torch tensors: contexts [B, CONTEXT], and [B, MAX_RESPONSE] or [B] of the rest."""

    contexts: Tensor
    tokens: Tensor
    mask: Tensor
    rollout_logprobs: Tensor
    old_logprobs: Tensor
    rewards: Tensor
    advantages: Tensor
    group_ids: Tensor
    truncated: Tensor
    version: int

    @classmethod
    def of(
        cls, prompts: SumPrompts, sampled: SampledResponses, rewards: Any, *, n_responses: int, version: int
    ) -> LearnerBatch:
        """Return the batch of a rollout; advantages are the group's centred and scaled rewards."""
        groups = rewards.reshape(-1, n_responses)
        centred = groups - groups.mean(axis=1, keepdims=True)
        advantages = (centred / (groups.std(axis=1, keepdims=True) + SMALLEST_STD)).ravel()
        mask = np.arange(MAX_RESPONSE) < sampled.lengths[:, None]
        return cls(
            contexts=contexts_of(prompts, sampled.tokens),
            tokens=torch.from_numpy(sampled.tokens),
            mask=torch.from_numpy(mask),
            rollout_logprobs=torch.from_numpy(sampled.logprobs),
            old_logprobs=torch.empty(0),
            rewards=torch.from_numpy(rewards).float(),
            advantages=torch.from_numpy(advantages).float(),
            group_ids=torch.arange(len(rewards)) // n_responses,
            truncated=torch.from_numpy(sampled.truncated),
            version=version,
        )


def contexts_of(prompts: SumPrompts, tokens: Any) -> Tensor:
    """Return prompts and responses without their last token, [B, CONTEXT]."""
    joined: Tensor = torch.from_numpy(np.concatenate([prompts.tokens, tokens], axis=1)[:, :CONTEXT])
    return joined


def taken(outputs: Tensor, tokens: Tensor) -> Tensor:
    """Return the log-probs of tokens, shaped like them."""
    return outputs.gather(-1, tokens[..., None])[..., 0]


@cache
def warm_weights(seed: int) -> dict[str, Tensor]:
    """Return the weights of a supervised start that answers about a sixth of the prompts exactly."""
    model, rng = SumsModel(seed), np.random.default_rng(seed)
    optimizer = torch.optim.Adam(model.parameters(), lr=WARM_LR, foreach=True)
    for step in range(WARM_LIMIT):
        if step % 5 == 0 and _exact_share(model, rng) >= WARM_TARGET:
            break
        _imitate(model, optimizer, draw_sums(WARM_BATCH, rng))
    return model.state_dict()


def _imitate(model: SumsModel, optimizer: torch.optim.Optimizer, prompts: SumPrompts) -> None:
    answers = np.full((len(prompts.tokens), MAX_RESPONSE), FILLER)
    answers[:, : MAX_DIGITS + 1] = prompts.answers
    outputs, routing = model(contexts_of(prompts, answers))
    targets = torch.from_numpy(answers)
    mask = targets != FILLER
    shares = routing[mask].mean(dim=0)
    loss = -taken(outputs, targets.masked_fill(~mask, 0))[mask].mean() + BALANCE * shares.square().sum() * len(shares)
    optimizer.zero_grad()
    torch.autograd.backward(loss)
    optimizer.step()


def _exact_share(model: SumsModel, rng: np.random.Generator) -> float:
    engine = NumpyEngine(rng)
    engine.load({name: value.detach().numpy() for name, value in model.named_parameters()}, bits=None)
    prompts = draw_sums(256, rng)
    sampled = engine.sample(prompts, FaultEffect())
    return float((rewards_of(sampled.tokens, sampled.lengths, prompts) == 1.0).mean())
