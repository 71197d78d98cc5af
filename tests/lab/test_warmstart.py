"""The warm start is equal for equal seeds."""

from __future__ import annotations

import torch

from trmon.lab.testbed.config import LabConfig
from trmon.lab.testbed.training import prepare_training
from trmon.lab.testbed.warmstart import warm_start


def test_equal_seeds_give_equal_warm_starts() -> None:
    cached = prepare_training(LabConfig.healthy(0))
    again = warm_start.__wrapped__(0)
    assert again.steps == cached.steps
    assert all(torch.equal(again.weights[name], cached.weights[name]) for name in cached.weights)
