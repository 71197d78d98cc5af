"""Samples and exporters, shaped as in prime-rl 0.8.1.dev67, commit 559b4477: trainer/rl/{loss,token_export}.py."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

from tests.client.integrations.rollouts import (
    LENGTHS,
    Rollouts,
    assert_bit_identical,
    assert_reported,
    checkpoints,
    reported,
)
from tests.client.server import Peer
from trmon_client.core import wire
from trmon_client.integrations.prime_rl import ReportingLoss

LOSS, EXPORT = "prime_rl.trainer.rl.loss", "prime_rl.trainer.rl.token_export"
CHECKPOINTS = "prime_rl.trainer.ckpt"


@dataclass
class LossConfig:
    """The configuration of a loss."""

    kl_tau: float = 1e-3


def loss(inputs: Any, config: LossConfig) -> torch.Tensor:
    """Return the sum over tokens of -advantage x ratio, and the squared log-ratio as its regulariser."""
    log_ratio = inputs.trainer_logprobs - inputs.inference_logprobs
    per_token = -inputs.advantages * log_ratio.exp() + config.kl_tau * log_ratio**2
    return (per_token * inputs.loss_mask).sum()


def prime_rl(monkeypatch: pytest.MonkeyPatch, *, export: Any = None) -> Any:
    """Stand in for prime-rl's modules; return the exporter of a run without token export."""

    class TokenExporter:
        def export(self, step: int, micro_step: int, micro_batch: Any, *_more: Any) -> None:
            raise AssertionError("token export is off")

    class DisabledTokenExporter:
        def export(self, *args: Any, **kwargs: Any) -> None:
            return

    if export is not None:
        TokenExporter.export = export  # type: ignore[method-assign]
    losses, exporters = ModuleType(LOSS), ModuleType(EXPORT)
    vars(losses).update(default_loss_fn=loss, ipo_loss_fn=loss, DefaultLossConfig=LossConfig, IPOLossConfig=LossConfig)
    vars(exporters).update(TokenExporter=TokenExporter, DisabledTokenExporter=DisabledTokenExporter)
    monkeypatch.setitem(sys.modules, LOSS, losses)
    monkeypatch.setitem(sys.modules, EXPORT, exporters)

    class CheckpointManager:
        def get_ckpt_path(self, step: int) -> Path:
            return Path("/runs/checkpoints") / f"step_{step}" / "trainer"

        def save(self, step: int, model: Any, optimizers: Any, scheduler: Any, progress: Any) -> None:
            pass

    checkpoints = ModuleType(CHECKPOINTS)
    checkpoints.CheckpointManager = CheckpointManager  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, CHECKPOINTS, checkpoints)
    return DisabledTokenExporter()


def samples(rollouts: Rollouts) -> list[SimpleNamespace]:
    """Return the rollouts as the `LossInputs` that `compute_loss` passes: one sample a call, with a gradient."""
    return [
        SimpleNamespace(
            trainer_logprobs=rollouts.old[i, :length].clone().requires_grad_(),
            inference_logprobs=rollouts.mu[i, :length],
            advantages=rollouts.advantages[i, :length],
            loss_mask=rollouts.mask[i, :length].bool(),
        )
        for i, length in enumerate(LENGTHS)
    ]


def test_a_micro_batch_is_reported_and_the_loss_is_bit_identical(server: Peer, monkeypatch: pytest.MonkeyPatch) -> None:
    exporter = prime_rl(monkeypatch)
    rollouts, reporting = Rollouts.generate(), ReportingLoss()
    plain, given = samples(rollouts), samples(rollouts)
    for one, other in zip(plain, given, strict=True):
        expected, found = loss(one, LossConfig(0.5)), reporting(other, kl_tau=0.5)
        expected.backward()
        found.backward()
        assert_bit_identical([expected, one.trainer_logprobs.grad], [found, other.trainer_logprobs.grad])
    assert exporter.export(9, 0, {}, {}, list(LENGTHS), None) is None
    (report,), columns = reported(server)
    assert (report.step, report.update, report.chunks) == (9, None, None)
    assert_reported(columns, rollouts, pair="total")


def test_micro_batches_are_chunks_of_their_step(server: Peer, monkeypatch: pytest.MonkeyPatch) -> None:
    exporter = prime_rl(monkeypatch)
    reporting = ReportingLoss()
    for micro_step, sample in enumerate(samples(Rollouts.generate())):
        reporting(sample, type="ipo")
        exporter.export(9, micro_step, {}, {}, [4], None)
    reports, columns = reported(server, n=4)
    assert [(report.step, report.chunk) for report in reports] == [(9, 0), (9, 1), (9, 2), (9, 3)]
    assert columns["n_tokens"].tolist() == list(LENGTHS)


def test_a_checkpoint_is_reported_with_its_path(server: Peer, monkeypatch: pytest.MonkeyPatch) -> None:
    prime_rl(monkeypatch)
    ReportingLoss()(samples(Rollouts.generate())[0])
    sys.modules[CHECKPOINTS].CheckpointManager().save(9, "model", ["optimizer"], "scheduler", "progress")
    assert checkpoints(server) == [(9, "/runs/checkpoints/step_9/trainer")]


@pytest.mark.parametrize(("rank", "expected"), [(2, (1, 2)), (3, None)])
def test_of_ranks_with_the_same_samples_one_reports(
    server: Peer, monkeypatch: pytest.MonkeyPatch, rank: int, expected: tuple[int, int] | None
) -> None:
    monkeypatch.setenv("RANK", str(rank))
    monkeypatch.setenv("WORLD_SIZE", "4")
    exporter, reporting = prime_rl(monkeypatch), ReportingLoss()
    reporting(samples(Rollouts.generate())[0], ranks_per_replica=2)
    exporter.export(9, 0, {}, {}, [4], None)
    if expected is None:
        assert reporting._monitor is None
        return
    (report,), _ = reported(server)
    (start,) = server.of(wire.Start)
    assert (report.rank, start.world_size) == expected


def test_another_version_is_named_once(
    server: Peer, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    prime_rl(monkeypatch, export=lambda _self, batch: batch)
    reporting = ReportingLoss()
    for sample in samples(Rollouts.generate()):
        assert torch.isfinite(reporting(sample))
    assert reporting._samples == []
    assert capfd.readouterr().err.count("lacks export(self, step, micro_step, micro_batch)") == 1
    assert not server.messages
