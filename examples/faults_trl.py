"""Faults in a real trainer: TRL's GRPOTrainer with one fault a run, and what trmon says of each, as a table.

python examples/faults_trl.py [FAULT ...]

Reports to TRMON_URL, else to a service that it starts (`trmon`, or TRMON_SERVICE). A policy of one layer counts up by
one to three at a time; its sampler is an engine with weights of its own, as vLLM is. Needs TRL 1.16.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ |= {"TRL_EXPERIMENTAL_SILENCE": "1", "TOKENIZERS_PARALLELISM": "false"}

import torch
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from torch import Tensor
from transformers import (
    PreTrainedTokenizerFast,
    PrinterCallback,
    Qwen2Config,
    Qwen2ForCausalLM,
    TrainerCallback,
    set_seed,
)
from trl import GRPOConfig, GRPOTrainer
from trl.trainer.utils import add_fused_lm_head

from trmon_client.api import Service
from trmon_client.api.diagnosis import DiagnosisInfo, FindingInfo
from trmon_client.integrations.trl import attach

torch.set_num_threads(1)  # more would wait for each other in a model this small

STEPS, FAULT_AT = 64, 30
N_PROMPTS, N_RESPONSES = 16, 8
LIMIT, SHORT_LIMIT = 24, 12
SEED = int(os.environ.get("SEED", "0"))
TEMPERATURE, LEARNING_RATE = 0.8, 2e-3
SPECIAL = ["<pad>", "<eos>", "<unk>", "<start>"]
PAD, EOS, _, START = range(4)
N_NUMBERS, N_STARTS, STRIDE = 40, 16, 3
WORDS = [*SPECIAL, *map(str, range(N_NUMBERS))]
ZERO, LAST = len(SPECIAL), len(WORDS) - 1


def tokenizer() -> PreTrainedTokenizerFast:
    words = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token=SPECIAL[2]))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    special = dict(zip(["pad_token", "eos_token", "unk_token"], SPECIAL, strict=False))
    return PreTrainedTokenizerFast(tokenizer_object=words, model_input_names=["input_ids", "attention_mask"], **special)


def share_of_the_way(completion_ids: list[list[int]], first: list[int], **_: Any) -> list[float]:
    """Return how far each completion counts from its first number to the last one before it errs; 1 if it then ends."""
    rewards = []
    for tokens, start in zip(completion_ids, first, strict=True):
        at = ZERO + start
        for token in tokens:
            if not at < token <= at + STRIDE:
                break
            at = token
        has_ended = at + STRIDE > LAST and tokens[-1] == EOS
        rewards.append(1.0 if has_ended else (at - ZERO - start) / (LAST + 1 - ZERO - start))
    return rewards


def warm_policy() -> Qwen2ForCausalLM:
    """Return a policy that has seen answers with wrong tokens, so that it knows the form and can learn the rest."""
    set_seed(SEED)
    shape = {"hidden_size": 48, "intermediate_size": 96, "num_hidden_layers": 1, "num_attention_heads": 4}
    policy = Qwen2ForCausalLM(
        Qwen2Config(vocab_size=len(WORDS), num_key_value_heads=4, max_position_embeddings=64, **shape)
    )
    optimizer = torch.optim.AdamW(policy.parameters(), lr=3e-3)
    for _ in range(200):
        answers = [answer(int(torch.randint(N_STARTS, ()))) for _ in range(64)]
        longest = max(map(len, answers))
        ids = torch.tensor([[*row, *[-100] * (longest - len(row))] for row in answers])
        loss = policy(input_ids=ids.clamp(min=0), attention_mask=ids >= 0, labels=ids).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return policy


def answer(start: int) -> list[int]:
    """Return a prompt and an answer of which every seventh token is any number."""
    row = [START, ZERO + start]
    while row[-1] != EOS and len(row) < 40:
        after = row[-1] + int(torch.randint(1, STRIDE + 1, ()))
        is_wrong = torch.rand(()) < 0.15
        row.append(int(torch.randint(ZERO, LAST + 1, ())) if is_wrong else after if after <= LAST else EOS)
    return row


@dataclass
class Sampler:
    """An engine that samples token by token from its own copy of the weights, and returns log-probs."""

    dtype: torch.dtype = torch.float32
    temperature: float = TEMPERATURE
    returned_temperature: float | None = None
    top_p: float = 1.0
    is_frozen: bool = False
    change: Callable[[Tensor], Tensor] = Tensor.clone
    policy: Any = None

    @torch.no_grad()
    def __call__(self, prompts: list[str], trainer: GRPOTrainer) -> dict[str, Any]:
        """Return completions of prompts: TRL's `rollout_func`."""
        if not self.is_frozen:
            self.policy = Qwen2ForCausalLM(trainer.model.config).to(self.dtype).eval()
            self.policy.load_state_dict(trainer.model.state_dict())
        prompt_ids = trainer.processing_class(prompts)["input_ids"]
        token, cache, tokens, logprobs = torch.tensor(prompt_ids), None, [], []
        for _ in range(trainer.args.max_completion_length):
            output = self.policy(input_ids=token, past_key_values=cache, use_cache=True)
            cache, logits = output.past_key_values, output.logits[:, -1].float()
            sampled_from = self.nucleus((logits / self.temperature).log_softmax(-1))
            token = torch.multinomial(sampled_from.exp(), 1)
            returned = sampled_from
            if self.returned_temperature is not None:
                returned = (logits / self.returned_temperature).log_softmax(-1)
            tokens.append(token)
            logprobs.append(returned.gather(-1, token))
        ids, given = torch.cat(tokens, 1), torch.cat(logprobs, 1)
        ended = (ids == EOS).long()
        lengths = (ended.cumsum(1) - ended == 0).sum(1).tolist()
        return {
            "prompt_ids": prompt_ids,
            "completion_ids": [row[:n].tolist() for row, n in zip(ids, lengths, strict=True)],
            "logprobs": [self.change(row[:n]).tolist() for row, n in zip(given, lengths, strict=True)],
        }

    def nucleus(self, logprobs: Tensor) -> Tensor:
        """Return the log-probs of the most likely tokens that reach `top_p` together."""
        if self.top_p == 1.0:
            return logprobs
        likely = logprobs.sort(descending=True)
        is_kept = likely.values.exp().cumsum(-1) - likely.values.exp() < self.top_p
        is_kept = torch.zeros_like(is_kept).scatter(-1, likely.indices, is_kept)
        return logprobs.where(is_kept, -torch.inf).log_softmax(-1)


class CountingTrainer(GRPOTrainer):
    """TRL's trainer, whose mask can count padding."""

    counts_padding = False

    def _generate_and_score_completions(self, inputs: Any) -> Any:
        rollouts = super()._generate_and_score_completions(inputs)
        if self.counts_padding:
            rollouts["completion_mask"] = torch.ones_like(rollouts["completion_mask"])
        return rollouts


class LargeSteps(TrainerCallback):
    """Multiplies the learning rate in the optimizer's groups by 30, which no log shows."""

    def on_pre_optimizer_step(self, args: Any, _state: Any, _control: Any, **given: Any) -> None:
        for group in given["optimizer"].param_groups:
            group["lr"] = 30 * args.learning_rate


def some_nan(logprobs: Tensor) -> Tensor:
    return logprobs.masked_fill(torch.rand(len(logprobs)) < 0.25, torch.nan)


def first_nan() -> Callable[[Tensor], Tensor]:
    """Return a change that makes one log-prob of the whole run NaN."""
    values = iter([torch.nan])
    return lambda logprobs: torch.cat([logprobs[:1] + next(values, 0.0), logprobs[1:]])


Fault = Callable[[CountingTrainer, Sampler], Any]


def of_sampler(**values: Any) -> Fault:
    return lambda _, sampler: vars(sampler).update(values)


FAULTS: dict[str, Fault] = {
    "none": lambda *_: None,
    "none, half of the answers cut": lambda *_: None,
    "sampler in bfloat16": of_sampler(dtype=torch.bfloat16),
    "sampler's weights frozen": of_sampler(is_frozen=True),
    "mask of all ones": lambda trainer, _: setattr(trainer, "counts_padding", True),
    "sampler without the temperature": of_sampler(temperature=1.0),
    "trainer without the temperature": lambda trainer, _: add_fused_lm_head(
        trainer.model, temperature=1.0, outputs=("log_probs", "entropy")
    ),
    "log-probs from before the temperature": of_sampler(returned_temperature=1.0),
    "learning rate x30": lambda trainer, _: trainer.add_callback(LargeSteps()),
    "log-probs shifted by one": of_sampler(change=lambda logprobs: logprobs.roll(1)),
    "25% of the log-probs NaN": of_sampler(change=some_nan),
    "top-p 0.9, and one NaN": lambda _, sampler: vars(sampler).update(top_p=0.9, change=first_nan()),
}


class Injection(TrainerCallback):
    def __init__(self, inject: Callable[[], Any]) -> None:
        self.inject = inject

    def on_step_begin(self, _args: Any, state: Any, _control: Any, **_: Any) -> None:
        if state.global_step == FAULT_AT:
            self.inject()


def train(fault: str, folder: Path, *, url: str) -> str:
    """Train with a fault from step 30 on, and return the name of the run."""
    policy, sampler = warm_policy(), Sampler()
    first = torch.randint(N_STARTS, (STEPS * N_PROMPTS,), generator=torch.Generator().manual_seed(SEED)).tolist()
    trainer = CountingTrainer(
        model=policy,
        reward_funcs=share_of_the_way,
        rollout_func=sampler,
        train_dataset=Dataset.from_dict({"prompt": [f"<start> {number}" for number in first], "first": first}),
        processing_class=tokenizer(),
        callbacks=[Injection(lambda: FAULTS[fault](trainer, sampler))],
        args=GRPOConfig(
            output_dir=str(folder),
            max_steps=STEPS,
            per_device_train_batch_size=N_PROMPTS * N_RESPONSES,
            num_generations=N_RESPONSES,
            max_completion_length=SHORT_LIMIT if "cut" in fault else LIMIT,
            temperature=TEMPERATURE,
            learning_rate=LEARNING_RATE,
            lr_scheduler_type="constant",
            logging_steps=1,
            save_strategy="no",
            report_to=[],
            seed=SEED,
            use_cpu=True,
            bf16=False,
            disable_tqdm=True,
        ),
    )
    trainer.remove_callback(PrinterCallback)
    run = f"{list(FAULTS).index(fault):02}-{fault.translate(str.maketrans(' ', '-', ',%'))}".replace("'", "")
    attach(trainer, project="faults", run=run, url=url)
    trainer.train()
    return f"faults/{run}"


def diagnosed(service: Service, run: str) -> DiagnosisInfo:
    """Return the diagnosis of a run that has ended, once all of it is judged."""
    for _ in range(600):
        with contextlib.suppress(Exception):
            if (found := service.diagnosis(run)).has_ended and found.step == STEPS - 1:
                return found
        time.sleep(0.2)
    raise TimeoutError(f"{run} is not judged")


def row(fault: str, found: DiagnosisInfo, end: str) -> list[str]:
    """Return what trmon found first, how long after the fault and since when, what led in the end, and the remedy."""
    findings = [one for one in (*found.findings, *found.over) if one.severity != "info"]
    if not findings:
        return [fault, "-", "-", "-", found.sentence.replace(";", ","), "-", end]
    first: FindingInfo = min(findings, key=lambda one: one.found_step)
    remedy = "-" if found.remedy is None else found.remedy.first
    words = [first.title, f"{first.found_step - FAULT_AT} steps", f"step {first.since_step}", found.findings[0].title]
    return [fault, *words, remedy.removeprefix("In the next run, "), end]


@contextlib.contextmanager
def service() -> Iterator[str]:
    """Give the URL of a service."""
    if url := os.environ.get("TRMON_URL"):
        yield url
        return
    command = [os.environ.get("TRMON_SERVICE", "trmon"), "serve", "--port", "0", "--data-dir"]
    with (
        tempfile.TemporaryDirectory() as folder,
        subprocess.Popen([*command, folder], stdout=subprocess.PIPE, text=True) as process,  # noqa: S603  ours
    ):
        assert process.stdout is not None
        yield process.stdout.readline().removeprefix("trmon_url=").strip()
        process.terminate()


def main(*faults: str) -> None:
    columns = ["fault at step 30", "first cause", "found after", "since", "in the end", "remedy", "ended"]
    print(f"| {' | '.join(columns)} |\n| {' | '.join(['---'] * len(columns))} |", flush=True)
    with service() as url, tempfile.TemporaryDirectory() as folder:
        reader = Service(url)
        for fault in faults or FAULTS:
            run = train(fault, Path(folder), url=url)
            found = diagnosed(reader, run)
            print(f"| {' | '.join(row(fault, found, reader.run(run).end_phrase))} |", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
