"""Trainers that are not as expected, and failures in what trmon reads of them: training continues."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.peers.trl import tiny
from tests.peers.trl.conftest import Received
from trmon_client.core import wire
from trmon_client.integrations.trl import attach


class OtherParametersTrainer(tiny.SamplingTrainer):
    """A trainer whose loss takes other parameters, and that has no `_calculate_rewards` to wrap."""

    _calculate_rewards = None

    def _compute_loss(self, batch: Any, policy: Any) -> Any:
        raise NotImplementedError


def passing_on(method: Any) -> Any:
    """Return a decorated method, as a tracer or a timer makes it."""

    @functools.wraps(method)
    def decorated(*args: Any, **kwargs: Any) -> Any:
        return method(*args, **kwargs)

    return decorated


class VariadicTrainer(tiny.SamplingTrainer):
    """A trainer whose overrides pass on whatever they are called with."""

    def _generate_and_score_completions(self, *args: Any, **kwargs: Any) -> Any:
        return super()._generate_and_score_completions(*args, **kwargs)

    def _compute_loss(self, model: Any, *args: Any, **kwargs: Any) -> Any:
        return super()._compute_loss(model, *args, **kwargs)

    def _get_per_token_logps_and_entropies(self, *args: Any, **kwargs: Any) -> Any:
        return super()._get_per_token_logps_and_entropies(*args, **kwargs)

    @passing_on
    def _calculate_rewards(self, inputs: Any, prompts: Any, completions: Any, completion_ids_list: Any) -> Any:
        return super()._calculate_rewards(inputs, prompts, completions, completion_ids_list)

    def log(self, *args: Any, **kwargs: Any) -> None:
        super().log(*args, **kwargs)


class LengtheningTrainer(tiny.SamplingTrainer):
    """A trainer whose sampler's log-probs are longer than the completions."""

    def _generate_and_score_completions(self, inputs: Any) -> Any:
        rollouts = super()._generate_and_score_completions(inputs)
        mu = rollouts["sampling_per_token_logps"]
        return {**rollouts, "sampling_per_token_logps": torch.cat([mu, mu], dim=1)}


class LigerTrainer(tiny.SamplingTrainer):
    """A trainer whose loss can be Liger's, as that of TRL 0.28; it trains without, since the package needs a GPU."""

    def train(self, *args: Any, **kwargs: Any) -> Any:
        self.args.use_liger_kernel = False
        return super().train(*args, **kwargs)

    def compute_liger_loss(self, unwrapped_model: Any, inputs: Any) -> Any:
        raise NotImplementedError


@pytest.mark.parametrize("mode", ["observe", "enforce"])
def test_overrides_that_pass_on_their_arguments_are_attached(
    tmp_path: Path, received: Received, capfd: pytest.CaptureFixture[str], mode: str
) -> None:
    trainer = received.train(tiny.grpo(tmp_path, kind=VariadicTrainer, sampler=tiny.noisy), mode=mode)
    assert "lacks" not in capfd.readouterr().err
    assert received.keys == [(step, 0, 0, 1) for step in range(4)]
    assert received.signals(0)["reward_mean"] == pytest.approx(trainer.state.log_history[0]["reward"])
    assert {report.mode for report in received.of(wire.Report)} == {mode}


def test_a_loss_that_computes_no_log_probs_is_named(
    tmp_path: Path, received: Received, capfd: pytest.CaptureFixture[str]
) -> None:
    trainer = tiny.grpo(tmp_path, kind=LigerTrainer)
    trainer.args.use_liger_kernel = True
    received.train(trainer, mode="enforce")
    said = capfd.readouterr().err
    assert "lacks log-probs in compute_liger_loss: trmon reports what it logs, without its sequences" in said
    assert "gives trmon no sequences: mode observe" in said
    assert received.scalars("reward").keys() == {1, 2, 3, 4}
    assert received.of(wire.Report) == []


def test_a_trainer_that_does_not_fit_gets_one_warning_and_reports_what_it_logs(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    trainer = tiny.grpo(tmp_path, kind=OtherParametersTrainer)
    for _ in range(2):
        attach(trainer, project="math", run="tiny", url="http://127.0.0.1:9")
    said = [line for line in capfd.readouterr().err.splitlines() if line.startswith("trmon:")]
    assert len(said) == 1
    assert "OtherParametersTrainer" in said[0]
    assert "_compute_loss(model, inputs)" in said[0]
    assert "_calculate_rewards(inputs, prompts, completions, completion_ids_list)" in said[0]
    assert {"train", "log", "evaluate", "_save_checkpoint"} <= vars(trainer).keys()
    assert "_compute_loss" not in vars(trainer)


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
