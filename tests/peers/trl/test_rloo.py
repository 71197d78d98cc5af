"""An RLOOTrainer with trmon attached, in real training on the CPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.peers.trl import tiny
from tests.peers.trl.conftest import Received
from trmon_client.core import wire


@pytest.mark.parametrize("given", [{}, {"num_iterations": 2, "gradient_accumulation_steps": 2, "beta": 0.1}], ids=str)
def test_observed_training_is_equal_to_the_last_bit(tmp_path: Path, received: Received, given: dict[str, Any]) -> None:
    alone = tiny.rloo(tmp_path, **given)
    alone.train()
    watched = received.train(tiny.rloo(tmp_path, **given))
    pairs = zip(watched.model.parameters(), alone.model.parameters(), strict=True)
    assert all(torch.equal(one, other) for one, other in pairs)
    assert len(received.keys) == 4 * given.get("gradient_accumulation_steps", 1)


def test_old_log_probs_are_those_of_the_generation(tmp_path: Path, received: Received) -> None:
    trainer = received.train(tiny.rloo(tmp_path, num_iterations=2))
    assert received.keys == [(0, 0, 0, 1), (0, 1, 0, 1), (2, 0, 0, 1), (2, 1, 0, 1)]
    first, second = received.columns[:2]
    assert first.pairs == ("staleness",)
    assert np.abs(first["staleness_sum_d"]).max() < 1e-5 < np.abs(second["staleness_sum_d"]).max()
    assert np.array_equal(first["sum_logp_old"], second["sum_logp_old"])
    assert first["reward"].mean() == pytest.approx(trainer.state.log_history[0]["reward"])
    assert sorted(first["group_id"].tolist()) == [0, 0, 1, 1]


def test_where_every_completion_is_rejected_nothing_changes(tmp_path: Path, received: Received) -> None:
    nothing = {"name": "nothing", "criteria": [{"statistic": "geo_ratio", "lower": 2.0, "upper": 3.0}]}
    trainer = tiny.rloo(tmp_path, num_iterations=2)
    before = [parameter.detach().clone() for parameter in trainer.model.parameters()]
    received.train(trainer, mode="enforce", policy=nothing)
    assert all(torch.equal(one, other) for one, other in zip(trainer.model.parameters(), before, strict=True))
    bits = [wire.unpack_bits(report.accepted, tiny.BATCH) for report in received.of(wire.Report)]
    assert not np.any(bits)
