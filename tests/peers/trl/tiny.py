"""A tiny model, its tokenizer and trainers of TRL that train it on the CPU within a second."""

from __future__ import annotations

import math
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM
from trl import GRPOConfig, GRPOTrainer, RLOOConfig, RLOOTrainer

VERSION = tuple(int(part) for part in version("trl").split(".")[:2])
PAD, EOS, UNKNOWN = "<pad>", "<eos>", "<unk>"
WORDS = [PAD, EOS, UNKNOWN, *(f"w{i}" for i in range(29))]
N_PROMPTS = 16
BATCH = 4
N_GENERATIONS = 2
LENGTH = 8

Sampler = Callable[[torch.Tensor], torch.Tensor]
"""Returns the log-probs that the sampler reports, for those of the model, [T]."""


def tokenizer() -> PreTrainedTokenizerFast:
    """Return a tokenizer of the words."""
    words = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token=UNKNOWN))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    special = {"pad_token": PAD, "eos_token": EOS, "unk_token": UNKNOWN}
    inputs = ["input_ids", "attention_mask"]
    return PreTrainedTokenizerFast(tokenizer_object=words, model_input_names=inputs, **special)


def model(folder: Path, **larger: Any) -> Qwen2ForCausalLM:
    """Return a small untrained model, the same each time, of which TRL finds a copy as reference.

    Args: larger: values of its configuration.
    """
    torch.manual_seed(0)
    untrained = Qwen2ForCausalLM(
        Qwen2Config(
            **{
                "vocab_size": len(WORDS),
                "hidden_size": 16,
                "intermediate_size": 32,
                "num_hidden_layers": 2,
                "num_attention_heads": 2,
                "num_key_value_heads": 2,
                "max_position_embeddings": 64,
                "pad_token_id": 0,
                "eos_token_id": 1,
                **larger,
            }
        )
    )
    untrained.save_pretrained(folder / "model")
    untrained.config._name_or_path = str(folder / "model")
    return untrained


def prompts(n: int = N_PROMPTS) -> Dataset:
    """Return prompts of two words."""
    return Dataset.from_dict({"prompt": [f"w{i} w{i + 1}" for i in range(n)]})


def word_sum(completions: list[str], **_: Any) -> list[float | None]:
    """Return the sum of the words' numbers modulo 5, a reward that differs within a group."""
    return [float(sum(int(word[1:]) for word in text.split() if word[1:].isdigit()) % 5) for text in completions]


class SamplingTrainer(GRPOTrainer):  # type: ignore[misc]
    """A GRPOTrainer whose sampler reports log-probs, as vLLM's does.

    `sampler` changes those of the model; with `corrects`, TRL applies its correction for vLLM.
    """

    sampler: Sampler | None = None
    corrects = False

    def _generate_single_turn(self, *args: Any, **kwargs: Any) -> Any:
        self.use_vllm = False
        given = super()._generate_single_turn(*args, **kwargs)
        if self.sampler is None:
            return given
        if self.corrects:
            self.use_vllm, self._last_loaded_step = True, self.state.global_step
        # TRL 1 takes the prompts' ids and returns those of the completions; 0.28 takes texts and returns both.
        prompt_ids, completion_ids = (args[0], given[0]) if len(given) == 2 else given[:2]
        logprobs = [
            self.sampler(self._logprobs(prompt, completion)).tolist()
            for prompt, completion in zip(prompt_ids, completion_ids, strict=True)
        ]
        return (completion_ids, logprobs) if len(given) == 2 else (prompt_ids, completion_ids, logprobs, *given[3:])

    def _logprobs(self, prompt: list[int], completion: list[int]) -> torch.Tensor:
        with torch.no_grad():
            logits = self.model(torch.tensor([[*prompt, *completion]])).logits[0, len(prompt) - 1 : -1]
        return logits.log_softmax(-1)[torch.arange(len(completion)), completion]


def grpo(
    folder: Path,
    *,
    kind: type[SamplingTrainer] = SamplingTrainer,
    policy: Qwen2ForCausalLM | None = None,
    sampler: Sampler | None = None,
    corrects: bool = False,
    **given: Any,
) -> SamplingTrainer:
    """Return a GRPOTrainer of 4 steps, or as the arguments of its configuration say."""
    inputs = {name: given.pop(name) for name in ("reward_funcs", "rollout_func", "eval_dataset") if name in given}
    trainer = kind(
        model=policy or model(folder),
        args=GRPOConfig(**{**arguments(folder), **given}),
        train_dataset=prompts(),
        processing_class=tokenizer(),
        **{"reward_funcs": word_sum, **inputs},
    )
    trainer.sampler, trainer.corrects = sampler, corrects
    return trainer


def rloo(folder: Path, **given: Any) -> RLOOTrainer:
    """Return an RLOOTrainer of 4 steps, or as the arguments of its configuration say."""
    return RLOOTrainer(
        model=model(folder),
        reward_funcs=word_sum,
        args=RLOOConfig(**{**arguments(folder), **given}),
        train_dataset=prompts(),
        processing_class=tokenizer(),
    )


def parameters_of(trainer: Any) -> list[torch.Tensor]:
    """Return copies of the parameters."""
    return [parameter.detach().clone() for parameter in trainer.model.parameters()]


def are_equal(one: list[torch.Tensor], other: list[torch.Tensor]) -> bool:
    """Return whether parameters are equal to the last bit."""
    return all(torch.equal(left, right) for left, right in zip(one, other, strict=True))


def noisy(logprobs: torch.Tensor) -> torch.Tensor:
    """Return log-probs as of another engine, without drawing random numbers."""
    return logprobs + 1e-3 * torch.sin(torch.arange(len(logprobs)))


def with_gap(logprobs: torch.Tensor) -> torch.Tensor:
    """Return log-probs of which the sampler lacks the first."""
    return torch.cat([torch.tensor([math.nan]), logprobs[1:]])


def arguments(folder: Path) -> dict[str, Any]:
    """Return what the configurations of all trainers have."""
    return {
        "output_dir": str(folder / "out"),
        "max_steps": 4,
        "per_device_train_batch_size": BATCH,
        "per_device_eval_batch_size": BATCH,
        "num_generations": N_GENERATIONS,
        "max_completion_length": LENGTH,
        "learning_rate": 1e-2,
        "logging_steps": 1,
        "save_strategy": "no",
        "report_to": [],
        "use_cpu": True,
        "bf16": False,
        "disable_tqdm": True,
    }
