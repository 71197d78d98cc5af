"""The rollout data, shaped as in slime 0.3.1, commit 624b824a: ray/rollout.py, backends/megatron_utils/actor.py."""

from __future__ import annotations

import sys
from argparse import Namespace
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

from tests.client.integrations.rollouts import (
    LENGTHS,
    SCORES,
    TRUNCATED,
    Rollouts,
    assert_bit_identical,
    assert_reported,
    checkpoints,
    reported,
    tensors_of,
)
from tests.client.server import Peer
from trmon_client.core import wire
from trmon_client.integrations.slime import RolloutReporter, keep_loss

ARGS = Namespace(
    n_samples_per_prompt=2, wandb_project="math", wandb_group="tiny", wandb_key="0123456789", save="/runs/a"
)


def megatron(monkeypatch: pytest.MonkeyPatch, **ranks: int) -> None:
    """Stand in for Megatron's ranks: the last of a pipeline, alone but for what `ranks` say."""
    mpu = SimpleNamespace(
        get_context_parallel_world_size=lambda: ranks.get("cp", 1),
        get_tensor_model_parallel_rank=lambda: ranks.get("tp_rank", 0),
        is_pipeline_last_stage=lambda: ranks.get("pp_rank", 1) == 1,
        get_data_parallel_rank=lambda: 0,
        get_data_parallel_world_size=lambda: ranks.get("dp", 1),
    )
    core = ModuleType("megatron.core")
    core.mpu = mpu  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "megatron.core", core)


def rollout_data(rollouts: Rollouts) -> dict[str, Any]:
    """Return the data of a rank: a tensor for each response, as long as it."""

    def rows(tensor: torch.Tensor) -> list[torch.Tensor]:
        return [row[:length].clone() for row, length in zip(tensor, LENGTHS, strict=True)]

    return {
        "partition": [0, 1, 2, 3],
        "response_lengths": list(LENGTHS),
        "rewards": [0.5, -0.5, 0.125, -0.125],
        "raw_reward": list(SCORES),
        "local_raw_reward": list(SCORES),
        "truncated": [int(value) for value in TRUNCATED],
        "sample_indices": [8, 9, 10, 11],
        "loss_masks": [mask.int() for mask in rows(rollouts.mask)],
        "rollout_log_probs": rows(rollouts.mu),
        "log_probs": rows(rollouts.old),
        "advantages": rows(rollouts.advantages),
    }


def test_the_rollouts_of_a_rank_are_reported_unchanged(server: Peer, monkeypatch: pytest.MonkeyPatch) -> None:
    megatron(monkeypatch, dp=2)
    rollouts = Rollouts.generate()
    data = rollout_data(rollouts)
    before = tensors_of(data)
    RolloutReporter()(ARGS, 7, data)
    assert_bit_identical(before, tensors_of(data))
    (report,), columns = reported(server)
    assert (report.step, report.update, report.chunks, report.rank) == (7, None, 1, 0)
    assert_reported(columns, rollouts, has=("rewards", "group_ids", "truncated"))
    (start,) = server.of(wire.Start)
    assert start.world_size == 2
    assert "0123456789" not in str(start.config)


def test_a_checkpoint_is_reported_with_its_path(server: Peer, monkeypatch: pytest.MonkeyPatch) -> None:
    megatron(monkeypatch)
    actor = ModuleType("slime.backends.megatron_utils.actor")
    actor.save = lambda iteration, model, optimizer, scheduler: (iteration, model)  # type: ignore[attr-defined]  # noqa: ARG005
    monkeypatch.setitem(sys.modules, actor.__name__, actor)
    RolloutReporter()(ARGS, 7, rollout_data(Rollouts.generate()))
    assert actor.save(7, "model", "optimizer", "scheduler") == (7, "model")
    assert checkpoints(server) == [(7, "/runs/a/iter_0000007")]


@pytest.mark.parametrize("ranks", [{"tp_rank": 1}, {"pp_rank": 0}, {"cp": 2}])
def test_ranks_without_whole_log_probs_report_nothing(
    server: Peer, monkeypatch: pytest.MonkeyPatch, ranks: dict[str, int]
) -> None:
    megatron(monkeypatch, **ranks)
    report = RolloutReporter()
    report(ARGS, 7, rollout_data(Rollouts.generate()))
    assert report._monitor is None
    assert not server.messages


def test_a_version_that_passes_something_else_is_named_once(server: Peer, capfd: pytest.CaptureFixture[str]) -> None:
    report = RolloutReporter()
    for _ in range(2):
        report(ARGS, [["a sample"]])
    assert capfd.readouterr().err.count("slime calls rollout_data_postprocess with other arguments") == 1
    assert not server.messages


def test_the_loss_and_the_masks_are_kept() -> None:
    loss, masks = torch.rand(10), [torch.ones(4)]
    kept = keep_loss(ARGS, pg_loss=loss, train_log_probs=[], rollout_log_probs=[], loss_masks=masks, total_lengths=[6])
    assert (kept[0] is loss, kept[1] is masks, kept[2]) == (True, True, {})
