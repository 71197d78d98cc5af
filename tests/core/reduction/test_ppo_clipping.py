"""Clip counts, with advantages per token and per sequence."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from trmon_client.core import statistics

CLIPPED = {
    "up with a gain: the clipped branch": (1.3, 1.0, (1, 0, 0)),
    "up with a loss: unbounded": (1.3, -1.0, (0, 1, 1)),
    "down with a loss: the clipped branch": (0.7, -1.0, (1, 0, 0)),
    "down with a gain: leaks, but bounded": (0.7, 1.0, (0, 1, 0)),
    "within the range": (1.1, 1.0, (0, 0, 0)),
    "an unknown advantage": (1.3, math.nan, (0, 0, 0)),
}


@pytest.mark.parametrize(("ratio", "advantage", "expected"), CLIPPED.values(), ids=CLIPPED)
@pytest.mark.parametrize("per_token", [False, True])
@pytest.mark.parametrize("horizon", [2, 300, 1 << 13])
def test_a_token_is_counted_by_its_ratio_and_advantage(
    ratio: float, advantage: float, expected: tuple[int, ...], per_token: bool, horizon: int
) -> None:
    old = np.full((1, horizon), -1.0, np.float32)
    mask = np.arange(horizon)[None] == 0
    found = statistics.columns(
        old_logprobs=old,
        logprobs=old + np.float32(math.log(ratio)),
        mask=mask,
        advantages=np.full((1, horizon) if per_token else 1, advantage),
    )
    assert tuple(found[name][0] for name in ("n_clipped", "n_leaked", "n_leaked_high")) == expected


def test_the_clip_range_is_an_argument() -> None:
    old = np.full((1, 1), -1.0)
    given: dict[str, Any] = {
        "old_logprobs": old,
        "logprobs": old + math.log(1.25),
        "mask": old < 0,
        "advantages": [1.0],
    }
    assert statistics.columns(**given, clip_high=0.28)["n_clipped"].tolist() == [0]
    assert statistics.columns(**given)["n_clipped"].tolist() == [1]


def test_clipping_uses_the_staleness_pair_if_it_is_available() -> None:
    rollout = np.full((1, 1), -1.0)
    given: dict[str, Any] = {
        "rollout_logprobs": rollout,
        "logprobs": rollout + 0.5,
        "mask": rollout < 0,
        "advantages": [1.0],
    }
    assert statistics.columns(**given)["n_clipped"].tolist() == [1]
    assert statistics.columns(**given, old_logprobs=rollout + 0.5)["n_clipped"].tolist() == [0]
