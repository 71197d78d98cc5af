"""A captured state decides how a run goes on, bit for bit, and is not changed by those that go on from it."""

from __future__ import annotations

import pytest
import torch

from tests.lab.grpo.experiments import small
from tests.lab.recording import RecordingMonitor
from trmon.lab.grpo.experiment_config import EngineMismatch, ExperimentConfig, constant
from trmon.lab.grpo.grpo_trainer import UpdateOutcome, train_experiment
from trmon_research.testbed import StudyTrainer
from trmon_research.trainer_state import ResumableTrainer, TrainerState, continue_experiment

STALE = EngineMismatch(lag=constant(2.0), router_noise=constant(1.0))


def _run(config: ExperimentConfig, *, capture_at: int) -> tuple[list[UpdateOutcome], TrainerState]:
    """Return the updates of a whole run, and its state before one of them."""
    trainer, outcomes = ResumableTrainer(config, RecordingMonitor()), []
    for update in range(config.n_updates):
        if update == capture_at:
            state = trainer.capture(update)
        outcomes.append(trainer.run_update(update))
    return outcomes, state


@pytest.mark.parametrize("architecture", StudyTrainer.architectures)
def test_a_run_goes_on_from_its_state_bit_for_bit(architecture: str) -> None:
    config = small(n_updates=7, architecture=architecture, engine=STALE, learning_rate=constant(5e-3))
    outcomes, state = _run(config, capture_at=4)
    for _ in range(2):
        assert list(continue_experiment(config, RecordingMonitor(), start=state)) == outcomes[4:]


def test_reports_go_on_too() -> None:
    config = small(n_updates=5, engine=STALE, learning_rate=constant(5e-3))
    whole = RecordingMonitor()
    list(train_experiment(config, whole))
    _, state = _run(config, capture_at=3)
    rest = RecordingMonitor()
    list(continue_experiment(config, rest, start=state))
    for call, before in zip(rest.calls, whole.calls[-len(rest.calls) :], strict=True):
        assert (call.step, call.update) == (before.step, before.update)
        assert all(
            torch.equal(torch.as_tensor(call.inputs[name]), torch.as_tensor(before.inputs[name]))
            for name in call.inputs
        )


def test_a_rolled_back_run_has_the_weights_of_the_checkpoint_and_goes_on_in_time() -> None:
    config = small(n_updates=6, engine=STALE, learning_rate=constant(5e-3))
    _, checkpoint = _run(config, capture_at=1)
    _, state = _run(config, capture_at=4)
    back = state.rolled_back(checkpoint)
    assert back.next_update == 4
    assert back.weights is checkpoint.weights
    assert torch.equal(back.learner_stream, state.learner_stream)
    monitor = RecordingMonitor()
    assert [outcome.update for outcome in continue_experiment(config, monitor, start=back)] == [4, 5]
    assert [call.decision.signals["version_lag_max"] for call in monitor.rollouts()] == [0, 1]


def test_a_reseeded_run_samples_otherwise() -> None:
    config = small(n_updates=4)
    outcomes, state = _run(config, capture_at=2)
    reseeded = list(continue_experiment(config, RecordingMonitor(), start=state.reseeded(99)))
    assert [outcome.grad_norm for outcome in reseeded] != [outcome.grad_norm for outcome in outcomes[2:]]
    assert torch.equal(
        state.reseeded(config.seed).engine_stream, ResumableTrainer(config, RecordingMonitor()).capture(0).engine_stream
    )
