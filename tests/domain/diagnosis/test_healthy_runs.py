"""Healthy long runs under bfloat16 noise stay quiet: every built-in rule, the whole pipeline, real columns."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from tests.domain.diagnosis import bf16
from tests.domain.pipeline.closings import closing, pass_context
from tests.domain.trainer import report
from trmon.domain.pipeline.close_batch import close_batch
from trmon.domain.pipeline.state import PipelineState
from trmon_client.core import wire
from trmon_client.core.columns import Columns
from trmon_client.core.statistics import columns

STEPS = 210
GROUP = 4


def batch(rng: np.random.Generator, *, sequences: int, length: int, step: int, updated: bool) -> Columns:
    """Return the columns of responses of a quarter of the length to all of it."""
    pool, shape = bf16.pool(), (sequences, length)
    tokens = (rng.integers(bf16.POOL_TOKENS, size=(sequences, 1)) + np.arange(length)) % bf16.POOL_TOKENS
    rewards = (rng.random(sequences) < 0.4).astype(float)
    lengths = rng.integers(length // 4, length + 1, sequences)
    return columns(
        rollout_logprobs=pool.rollout[tokens],
        old_logprobs=pool.old[tokens],
        logprobs=(pool.new if updated else pool.old)[tokens],
        mask=np.broadcast_to(np.arange(length), shape) < lengths[:, None],
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
        pytest.param(64, 256, 1, id="middling ones", marks=pytest.mark.slow),
        pytest.param(16, 2048, 2, id="long ones", marks=pytest.mark.slow),
        pytest.param(8, 8192, 3, id="8,192 tokens, in batches of eight"),
    ],
)
def test_a_healthy_run_raises_nothing(sequences: int, length: int, seed: int) -> None:
    pipeline_state, raised = PipelineState(), []
    for message in reports(sequences=sequences, length=length, seed=seed):
        published = close_batch(closing(message, pipeline_state=pipeline_state, context=pass_context()))
        pipeline_state = published.pipeline_state
        raised += [(alert.rule, alert.state.value, alert.step, alert.value) for alert in published.alerts]
    fired = [alert for alert in raised if alert[1] == "firing"]
    assert fired == []
    assert pipeline_state.steps == STEPS


def test_the_noise_is_that_of_bfloat16() -> None:
    pool = bf16.pool()
    noise = pool.old - pool.rollout
    assert bf16.rounded(np.float32([1.0, 1.00390625, 1.01171875, -3.14159])).tolist() == [
        1.0,
        1.0,
        1.015625,
        -3.140625,
    ]
    assert 0.005 < float(noise.std()) < 0.05
    assert abs(float(noise.mean())) < 0.002
