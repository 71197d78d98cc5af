"""One run: GRPO with TRL on a stored model, with rollouts of `engine`, reported by `attach` to a spool."""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from torch import Tensor
from transformers import PreTrainedTokenizerFast, PrinterCallback, TrainerCallback, set_seed
from trl import GRPOConfig, GRPOTrainer

from trmon_client.integrations.trl import attach
from trmon_research.language import models, text
from trmon_research.language.engine import Engine, Rollout
from trmon_research.language.plans import N_UPDATES, TEMPERATURE, Plan, plans
from trmon_research.language.stored import EVALUATIONS, SPOOL, TOKENS, pack
from trmon_research.language.task import Check, reward_of

PROJECT = "language"
N_PROMPTS, N_RESPONSES, N_TOKENS = 6, 8, 192
LEARNING_RATE = 5e-5
N_EVALUATED, EVALUATED_EVERY = 64, 10
LONGEST_LAG = 16


def processing() -> PreTrainedTokenizerFast:
    """Return the tokenizer as trainers use it."""
    return PreTrainedTokenizerFast(
        tokenizer_object=text.tokenizer(),
        pad_token=text.PADDING,
        eos_token=text.END,
        padding_side="left",
        model_input_names=["input_ids", "attention_mask"],
    )


class EngineOfTrainer:
    """What TRL drives in place of vLLM: takes the trainer's weights when told to, and says of which step they are."""

    def __init__(self, trainer: GRPOTrainer, engine: Engine) -> None:
        self.engine = engine
        self._trainer = trainer
        self._past: deque[tuple[int, dict[str, Tensor]]] = deque(maxlen=LONGEST_LAG + 1)
        self.version = -1
        self.is_frozen = False
        self.lag: Callable[[int], int] = lambda _: 0
        self.change: Callable[[Tensor], Tensor] | None = None

    def sync_weights(self) -> None:
        """Load the trainer's weights, or those of some steps ago; a frozen engine claims to have done so."""
        step = int(self._trainer.state.global_step)
        lag = min(self.lag(step), LONGEST_LAG)
        if not self.is_frozen:
            weights = {name: value.detach().clone() for name, value in self._trainer.model.state_dict().items()}
            self._past.append((step, weights))
            step, weights = self._past[max(0, len(self._past) - 1 - lag)]
            self.engine.load(weights)
        self.version = step

    def generate(self, *, prompts: list[list[int]], **_: Any) -> tuple[Any, ...]:
        """Return prompts, responses, the log-prob of each token in a list of one, and nothing more, as TRL expects."""
        rollouts = self.engine.generate(prompts, n_tokens=self._trainer.args.max_completion_length)
        given = [torch.tensor(one.logprobs) for one in rollouts]
        given = given if self.change is None else [self.change(row) for row in given]
        return prompts, [one.tokens for one in rollouts], [row[:, None].tolist() for row in given], {}


class LanguageTrainer(GRPOTrainer):
    """TRL's trainer with an engine in place of vLLM, whose mask can count padding."""

    counts_padding = False
    vllm_generation: EngineOfTrainer

    @property
    def _last_loaded_step(self) -> int:
        return self.vllm_generation.version if hasattr(self, "vllm_generation") else -1

    @_last_loaded_step.setter
    def _last_loaded_step(self, step: int) -> None:
        """The engine says itself of which step its weights are."""

    def _generate_and_score_completions(self, inputs: Any) -> Any:
        rollouts = super()._generate_and_score_completions(inputs)
        if self.counts_padding:
            rollouts["completion_mask"] = torch.ones_like(rollouts["completion_mask"])
        return rollouts


class Reward:
    """The verifier's reward of each response, with what a run adds to it. `__name__` is what TRL logs it by."""

    def __init__(self, check: Check) -> None:
        self.check = check
        self.sign = 1.0
        self.length_bonus = 0.0
        self.__name__ = "check"

    def __call__(
        self, prompts: list[str], completions: list[str], completion_ids: list[list[int]], **_: Any
    ) -> list[float]:
        """Return a reward for each completion."""
        found = []
        for prompt, completion, ids in zip(prompts, completions, completion_ids, strict=True):
            has_ended = ids[-1] == text.END_ID
            earned = self.sign * reward_of(prompt + completion, has_ended=has_ended, check=self.check)
            found.append(earned + self.length_bonus * len(ids) / N_TOKENS)
        return found


class Injection(TrainerCallback):
    """Starts the fault at its update, and again in a run that continues from a later checkpoint."""

    def __init__(self, plan: Plan, trainer: LanguageTrainer, reward: Reward) -> None:
        self._plan, self._trainer, self._reward = plan, trainer, reward
        self._is_in = False

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """See TrainerCallback."""
        fault = self._plan.fault
        if fault is not None and not self._is_in and state.global_step >= fault.at:
            self._is_in = True
            inject(fault.name, fault.value, self._trainer, self._reward, at=fault.at)

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        """Multiply the learning rate in the optimizer's groups, which no log shows."""
        fault = self._plan.fault
        if fault is not None and fault.name == "learning rate" and self._is_in:
            for group in given["optimizer"].param_groups:
                group["lr"] = fault.value * args.learning_rate


def inject(fault: str, value: float, trainer: LanguageTrainer, reward: Reward, *, at: int) -> None:
    """Make a fault begin."""
    rollouts = trainer.vllm_generation
    sampling = rollouts.engine.sampling
    match fault:
        case "frozen":
            rollouts.is_frozen = True
        case "lag":
            rollouts.lag = lambda step: 1 + int((step - at) * value)
        case "shift":
            rollouts.change = lambda row: row.roll(int(value))
        case "zeros":
            rollouts.change = lambda row: row.masked_fill(torch.rand(len(row)) < value, 0.0)
        case "padding":
            trainer.counts_padding = True
        case "temperature":
            sampling.temperature = value
        case "top-p":
            sampling.top_p = value
        case "router noise":
            sampling.router_noise = value
        case "entropy bonus":
            trainer.entropy_coef, trainer._entropy_bonus_enabled = value, True
        case "sign":
            reward.sign = value
        case "length bonus":
            reward.length_bonus = value
        case "learning rate":
            pass
        case _:
            raise ValueError(fault)


class Evaluation(TrainerCallback):
    """Evaluates the policy every ten updates by the verifier alone, on separate prompts, in float32; not reported."""

    def __init__(self, plan: Plan, prompts: list[str], path: Path) -> None:
        self._check, self._prompts, self._path = plan.check, prompts, path

    def on_step_end(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        """See TrainerCallback."""
        if state.global_step % EVALUATED_EVERY == 0:
            rewards, n_tokens = evaluated(given["model"], self._prompts, self._check)
            line = {"update": state.global_step - 1, "reward": rewards, "tokens": n_tokens, "at": round(time.time())}
            with self._path.open("a") as file:
                file.write(json.dumps(line) + "\n")


def evaluated(model: Any, prompts: Iterable[str], check: Check) -> tuple[float, float]:
    """Return the mean reward and length of a response to each prompt, always with the same random numbers."""
    engine = Engine(model.config, precision="float32", seed=1)
    engine.sampling.temperature = TEMPERATURE
    engine.load(model.state_dict())
    prompts = list(prompts)
    ids = [one.ids for one in text.tokenizer().encode_batch(prompts)]
    found: list[Rollout] = engine.generate(ids, n_tokens=N_TOKENS)
    rewards = [
        reward_of(prompt + text.tokenizer().decode(one.tokens), has_ended=one.tokens[-1] == text.END_ID, check=check)
        for prompt, one in zip(prompts, found, strict=True)
    ]
    return round(sum(rewards) / len(found), 4), round(sum(len(one.tokens) for one in found) / len(found), 1)


def make_trainer(plan: Plan, folder: Path) -> LanguageTrainer:
    """Return the trainer of a plan, whose checkpoints go to `folder`."""
    torch.set_num_threads(1)
    set_seed(plan.seed)
    prompts = text.prompts()
    random = torch.Generator().manual_seed(plan.seed)
    n_prompts = N_PROMPTS * N_UPDATES
    n_trained = len(prompts) - N_EVALUATED
    rows = torch.cat([torch.randperm(n_trained, generator=random) for _ in range(1 + n_prompts // n_trained)])
    reward = Reward(plan.check)
    trainer = LanguageTrainer(
        model=models.trained_model(plan.kind),
        reward_funcs=reward,
        train_dataset=Dataset.from_dict({"prompt": [prompts[N_EVALUATED + row] for row in rows[:n_prompts].tolist()]}),
        processing_class=processing(),
        args=GRPOConfig(
            output_dir=str(folder),
            max_steps=N_UPDATES,
            per_device_train_batch_size=N_PROMPTS * N_RESPONSES // plan.n_updates_a_rollout,
            steps_per_generation=plan.n_updates_a_rollout,
            num_generations=N_RESPONSES,
            max_completion_length=N_TOKENS,
            temperature=TEMPERATURE,
            learning_rate=LEARNING_RATE,
            lr_scheduler_type="constant_with_warmup" if plan.warm_up else "constant",
            warmup_steps=plan.warm_up,
            vllm_importance_sampling_correction=False,
            gradient_checkpointing=False,
            shuffle_dataset=False,
            logging_steps=1,
            save_strategy="no" if plan.restarts_at is None else "steps",
            save_steps=plan.restarts_at or 500,
            report_to=[],
            seed=plan.seed,
            use_cpu=True,
            bf16=False,
            disable_tqdm=True,
        ),
    )
    trainer.remove_callback(PrinterCallback)
    engine = Engine(trainer.model.config, precision=plan.precision, seed=plan.seed)
    engine.sampling.temperature = TEMPERATURE
    trainer.use_vllm, trainer.vllm_generation = True, EngineOfTrainer(trainer, engine)
    trainer.add_callback(Injection(plan, trainer, reward))
    trainer.add_callback(Evaluation(plan, prompts[:N_EVALUATED], folder / EVALUATIONS))
    return trainer


def train(plan: Plan, folder: Path) -> None:
    """Train a run, some 20 minutes of a core, and store it; what an interrupted process left in `folder` is deleted."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    trainer = make_trainer(plan, folder)
    os.environ |= {"TRMON_RECORD_DIR": str(folder / TOKENS), "TRMON_RECORD_STEPS": str(N_UPDATES)}
    attach(trainer, project=PROJECT, run=plan.name, spool_dir=folder / SPOOL)
    if plan.restarts_at is None:
        trainer.train()
    else:
        trainer.args.max_steps = plan.restarts_at
        trainer.train()
        trainer.args.max_steps = N_UPDATES
        trainer.train(resume_from_checkpoint=True)
    pack(plan, folder, core_seconds=time.process_time())
    shutil.rmtree(folder)


if __name__ == "__main__":
    train(next(plan for plan in plans() if plan.name == sys.argv[1]), Path(sys.argv[2]) / sys.argv[1])
