"""The task of the examples: count up from a digit to 9, then stop."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from itertools import zip_longest

import torch
from torch import Tensor

import trmon_client as trmon

END, N_TOKENS = 10, 11
LENGTH, N_PROMPTS, N_RESPONSES = 12, 16, 4
"""The limit of tokens of a response; prompts of a rollout, and responses to each."""

Batch = dict[str, Tensor]
"""Rows by name: [B] or [B, LENGTH]; what `log_batch` takes has its name there."""


def verify(prompt: int, response: list[int]) -> float:
    """Return the reward of a response: how many of its tokens are right, over the length of the longer one."""
    pairs = list(zip_longest([*range(prompt + 1, 10), END], response))
    return sum(right == said for right, said in pairs) / len(pairs)


def score(batch: Batch, starmap: Callable[..., Iterable[float]] = itertools.starmap) -> Batch:
    """Return the batch with rewards and GRPO's advantages."""
    rows = zip(batch["prompts"].tolist(), batch["tokens"], batch["mask"], strict=True)
    rewards = torch.tensor(list(starmap(verify, [(prompt, tokens[mask].tolist()) for prompt, tokens, mask in rows])))
    groups = rewards.view(-1, N_RESPONSES)
    advantages = (groups - groups.mean(1, keepdim=True)) / (groups.std(1, keepdim=True) + 1e-4)
    return {**batch, "rewards": rewards, "advantages": advantages.flatten()}


def reported(batch: Batch) -> Batch:
    """Return what `log_batch` takes of a batch."""
    return {name: values for name, values in batch.items() if name not in ("prompts", "tokens")}


def where_to_look(monitor: trmon.Monitor) -> str:
    """Return how to look at a run."""
    settings = monitor.settings
    show = f"trmon show {settings.project}/{settings.run}"
    if settings.page_url is None:
        return f"look at it: {show}, after trmon ingest {settings.spool_dir}"
    return f"look at it: {show}, or {settings.page_url}"
