"""Trainers that are not as expected, and failures in what trmon reads of them: training continues."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.client.server import Peer
from tests.peers.trl import tiny
from tests.peers.trl.conftest import Received
from trmon_client.core import wire
from trmon_client.integrations.trl import attach


class OtherParametersTrainer(tiny.SamplingTrainer):
    """A trainer whose loss takes other parameters, and that has no `_calculate_rewards` to wrap."""

    _calculate_rewards = None

    def _compute_loss(self, batch: Any, policy: Any) -> Any:
        raise NotImplementedError


class LengtheningTrainer(tiny.SamplingTrainer):
    """A trainer whose sampler's log-probs are longer than the completions."""

    def _generate_and_score_completions(self, inputs: Any) -> Any:
        rollouts = super()._generate_and_score_completions(inputs)
        mu = rollouts["sampling_per_token_logps"]
        return {**rollouts, "sampling_per_token_logps": torch.cat([mu, mu], dim=1)}


class LigerTrainer(tiny.SamplingTrainer):
    """A trainer whose loss can be Liger's, as that of TRL 0.28."""

    def compute_liger_loss(self, unwrapped_model: Any, inputs: Any) -> Any:
        raise NotImplementedError


def test_a_loss_that_computes_no_log_probs_is_named(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    trainer = tiny.grpo(tmp_path, kind=LigerTrainer)
    trainer.args.use_liger_kernel = True
    before = set(vars(trainer))
    attach(trainer, project="math", run="tiny")
    assert "lacks log-probs in compute_liger_loss: trmon is not attached" in capfd.readouterr().err
    assert set(vars(trainer)) == before


def test_a_trainer_that_does_not_fit_gets_one_warning_and_is_left_alone(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    trainer = tiny.grpo(tmp_path, kind=OtherParametersTrainer)
    before = set(vars(trainer))
    with Peer() as peer:
        for _ in range(2):
            attach(trainer, project="math", run="tiny", url=peer.url)
    said = [line for line in capfd.readouterr().err.splitlines() if line.startswith("trmon:")]
    assert len(said) == 1
    assert "OtherParametersTrainer" in said[0]
    assert "_compute_loss(model, inputs)" in said[0]
    assert "_calculate_rewards(inputs, prompts, completions, completion_ids_list)" in said[0]
    assert set(vars(trainer)) == before


def test_a_failure_while_reporting_is_counted_and_training_goes_on(
    tmp_path: Path, received: Received, capfd: pytest.CaptureFixture[str]
) -> None:
    alone = tiny.grpo(tmp_path, sampler=tiny.noisy)
    alone.train()
    trainer = received.train(tiny.grpo(tmp_path, kind=LengtheningTrainer, sampler=tiny.noisy))
    pairs = zip(trainer.model.parameters(), alone.model.parameters(), strict=True)
    assert all(torch.equal(one, other) for one, other in pairs)
    assert received.of(wire.Report) == []
    assert received.of(wire.Finish)[0].losses.dropped == {"internal": 4}
    assert capfd.readouterr().err.count("a call failed and was not reported: ValueError") == 1


def test_a_wrong_name_is_an_error_before_training(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="project"):
        attach(tiny.grpo(tmp_path), project="not a name", run="tiny")
