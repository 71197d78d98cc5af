"""An AsyncGRPOTrainer with trmon attached, in real training on the CPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.client.server import Peer
from tests.peers.trl.conftest import Received, run_ranks
from tests.peers.trl.tiny import are_equal, parameters_of
from trmon_client.core import wire

async_tiny = pytest.importorskip(
    "tests.peers.trl.async_tiny", reason="this TRL has no AsyncGRPOTrainer", exc_type=ImportError
)

RANK = """
import os, sys
from pathlib import Path

import torch

from tests.peers.trl.async_tiny import async_grpo
from trmon_client.integrations.trl import attach

trainer = async_grpo(Path(sys.argv[1]) / os.environ["RANK"], per_device_train_batch_size=4)
attach(trainer, project="math", run="tiny")
trainer.train()
torch.distributed.destroy_process_group()
"""


@pytest.mark.parametrize("given", [{}, {"token_budget": 24, "gradient_accumulation_steps": 2}], ids=str)
def test_observed_training_is_equal_to_the_last_bit(tmp_path: Path, received: Received, given: dict[str, Any]) -> None:
    alone = async_tiny.async_grpo(tmp_path, **given)
    before = parameters_of(alone)
    alone.train()
    watched = received.train(async_tiny.async_grpo(tmp_path, **given))
    assert are_equal(parameters_of(watched), parameters_of(alone))
    assert not are_equal(parameters_of(watched), before)
    n = given.get("gradient_accumulation_steps", 1)
    assert received.keys == [(step, None, chunk, n) for step in range(3) for chunk in range(n)]


def test_samples_have_their_rewards_groups_and_versions(tmp_path: Path, received: Received) -> None:
    trainer = received.train(async_tiny.async_grpo(tmp_path))
    for step, (columns, report) in enumerate(zip(received.columns, received.of(wire.Report), strict=True)):
        logged = trainer.state.log_history[step]
        assert columns.pairs == ("total",)
        assert sorted(columns["group_id"].tolist()) == [2 * step, 2 * step, 2 * step + 1, 2 * step + 1]
        assert columns["reward"].mean() == pytest.approx(logged["reward"])
        # The reward of a sample is its version, and decides the sign of its advantage.
        assert columns["version_min"].tolist() == columns["reward"].tolist()
        assert np.sign(columns["advantage"]).tolist() == np.sign(columns["reward"] - 0.5).tolist()
        assert report.trainer_version == step + 1
        assert columns["n_tokens"].sum() == logged["batch/trained_tokens_per_step"]
        assert received.signals(step)["total_kl_k3"] == pytest.approx(logged["kl"], rel=1e-3)
        assert received.scalars("loss")[step] == logged["loss"]
        assert step in received.scalars("sample/staleness_mean")


def test_every_rank_has_the_labels_of_its_samples(tmp_path: Path) -> None:
    for rank in "01":
        (tmp_path / rank).mkdir()
    with Peer() as peer:
        run_ranks(RANK, tmp_path, url=peer.url, ranks=2, timeout_seconds=300)
        peer.wait_until(lambda peer: len(peer.of(wire.Finish)) == 2)
        reports = peer.of(wire.Report)
    assert sorted((report.rank, report.step) for report in reports) == [(r, s) for r in range(2) for s in range(3)]
    for report in reports:
        columns = wire.unpack_columns(report)
        assert report.trainer_version == report.step + 1
        assert columns["version_min"].tolist() == columns["reward"].tolist()
        assert set(columns["group_id"].tolist()) <= set(range(4 * report.step, 4 * report.step + 4))
    assert sum(wire.unpack_columns(report)["reward"].size for report in reports) == 3 * 8


def test_enforcing_is_refused_and_observes(
    tmp_path: Path, received: Received, capfd: pytest.CaptureFixture[str]
) -> None:
    received.train(async_tiny.async_grpo(tmp_path), mode="enforce")
    assert capfd.readouterr().err.count("reads the advantages before the log-probs: mode observe") == 1
    assert {report.mode for report in received.of(wire.Report)} == {"observe"}
