"""Healthy long runs under bfloat16 noise stay quiet: every built-in rule, the whole pipeline, real columns."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch

from tests.domain.pipeline.closings import closing, pass_context
from tests.domain.trainer import report
from trmon.domain.pipeline.close_batch import close_batch
from trmon.domain.pipeline.state import PipelineState
from trmon_client.core import wire
from trmon_client.core.columns import Columns
from trmon_client.core.statistics import columns

STEPS = 210
GROUP = 4
POOL_TOKENS = 1 << 17


@cache
def pool() -> list[Any]:
    """Return the log-probs of sampled tokens, [POOL_TOKENS] each: the engine's, the trainer's, and after an update.

    The engine's logits and log-probs are the trainer's, rounded to bfloat16.
    """
    random = torch.Generator().manual_seed(0)
    logits, update = (torch.randn(POOL_TOKENS, 64, generator=random) * spread for spread in (4.0, 0.01))
    engine, *trainer = (x.log_softmax(-1) for x in (logits.bfloat16().float(), logits, logits + update))
    sampled = torch.multinomial(engine.exp(), 1, generator=random)
    return [x.gather(1, sampled)[:, 0].numpy() for x in (engine.bfloat16().float(), *trainer)]


def batch(rng: np.random.Generator, *, sequences: int, length: int, step: int, updated: bool) -> Columns:
    """Return the columns of responses of a quarter of the length to all of it."""
    rollout, old, new = pool()
    tokens = (rng.integers(POOL_TOKENS, size=(sequences, 1)) + np.arange(length)) % POOL_TOKENS
    rewards = (rng.random(sequences) < 0.4).astype(float)
    lengths = rng.integers(length // 4, length + 1, sequences)
    return columns(
        rollout_logprobs=rollout[tokens],
        old_logprobs=old[tokens],
        logprobs=(new if updated else old)[tokens],
        mask=np.arange(length) < lengths[:, None],
        advantages=rewards - rewards.mean(),
        rewards=rewards,
        group_ids=np.arange(sequences) // GROUP,
        versions=np.full(sequences, step),
        trainer_version=step,
    )


def reports(*, sequences: int, length: int, seed: int) -> Iterator[wire.Report]:
    """Yield each step's rollout batch and one update of it."""
    rng = np.random.default_rng(seed)
    for step in range(STEPS):
        scalars = {"grad_norm": float(rng.lognormal(0, 0.4)), "grad_variance": float(rng.lognormal(0, 0.3))}
        for update in (None, 0):
            content = batch(rng, sequences=sequences, length=length, step=step, updated=update is not None)
            yield report(step, update=update, content=content, scalars=scalars if update is None else {})


@pytest.mark.parametrize(
    ("sequences", "length", "seed"),
    [
        pytest.param(128, 16, 0, id="short responses"),
        pytest.param(16, 1024, 2, id="long ones", marks=pytest.mark.slow),
        pytest.param(8, 8192, 3, id="8,192 tokens, in batches of eight"),
    ],
)
def test_a_healthy_run_raises_nothing(sequences: int, length: int, seed: int) -> None:
    assert 0.005 < (pool()[1] - pool()[0]).std() < 0.05
    pipeline_state, raised = PipelineState(), []
    for message in reports(sequences=sequences, length=length, seed=seed):
        published = close_batch(closing(message, pipeline_state=pipeline_state, context=pass_context()))
        pipeline_state = published.pipeline_state
        raised += [(alert.rule, alert.state.value, alert.step, alert.value) for alert in published.alerts]
    fired = [alert for alert in raised if alert[1] == "firing"]
    assert fired == []
    assert pipeline_state.steps == STEPS
