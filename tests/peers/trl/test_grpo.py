"""A GRPOTrainer with trmon attached, in real training on the CPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.client.server import Peer
from tests.peers.trl import tiny
from trmon_client.core import wire
from trmon_client.integrations.trl import attach


def trained(trainer: Any) -> tuple[list[torch.Tensor], list[float]]:
    """Train; return the parameters and the losses."""
    trainer.train()
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    return [parameter.detach().clone() for parameter in trainer.model.parameters()], losses


@pytest.mark.parametrize("given", [{}, {"sampler": tiny.noisy, "num_iterations": 2}])
def test_observed_training_is_equal_to_the_last_bit(tmp_path: Path, given: dict[str, Any]) -> None:
    alone = trained(tiny.grpo(tmp_path, **given))
    trainer = tiny.grpo(tmp_path, **given)
    with Peer() as peer:
        attach(trainer, project="math", run="tiny", url=peer.url)
        parameters, losses = trained(trainer)
        assert len(peer.of(wire.Report)) == 4
    assert losses == alone[1]
    assert all(torch.equal(one, other) for one, other in zip(parameters, alone[0], strict=True))
