"""The policy and the data, shaped as in NeMo-RL 0.7.0, commit 7ea279ab: algorithms/grpo.py, utils/logger.py."""

from __future__ import annotations

from collections import UserDict
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tests.client.integrations.rollouts import (
    LENGTHS,
    Rollouts,
    assert_bit_identical,
    assert_reported,
    checkpoints,
    numbers,
    reported,
    tensors_of,
)
from tests.client.server import Peer
from trmon_client.core.columns import Columns
from trmon_client.integrations.nemo_rl import attach_nemo_rl


class Policy:
    """Keeps what it trains on."""

    def __init__(self) -> None:
        self.trained_on: list[tuple[Any, Any, Any]] = []

    def train(self, data: UserDict[str, Any], loss_fn: Any, *, timer: Any = None) -> dict[str, float]:
        self.trained_on.append((data, loss_fn, timer))
        return {"loss": 0.25}

    def save_checkpoint(self, weights_path: str, optimizer_path: str | None = None) -> None:
        pass


class Logger:
    """Delegates to its backends."""

    def __init__(self) -> None:
        self.loggers: list[Any] = []

    def log_metrics(self, metrics: dict[str, Any], step: int, prefix: str = "") -> None:
        for backend in self.loggers:
            backend.log_metrics(metrics, step, prefix, None, False)


def train_data(rollouts: Rollouts) -> UserDict[str, Any]:
    """Return the rollouts after a position that no token precedes, as in a `BatchedDataDict`."""

    def whole(values: torch.Tensor) -> torch.Tensor:
        return torch.cat([torch.zeros_like(values[:, :1]), values], dim=1)

    return UserDict(
        input_ids=whole(rollouts.mask),
        generation_logprobs=whole(rollouts.mu),
        prev_logprobs=whole(rollouts.old),
        advantages=whole(rollouts.advantages),
        token_mask=whole(rollouts.mask),
        sample_mask=torch.ones(len(LENGTHS)),
    )


STATE = SimpleNamespace(total_steps=6)


def test_a_step_is_reported_under_nemo_rls_number_and_stays_as_it_is(server: Peer) -> None:
    rollouts, policy, logger = Rollouts.generate(), Policy(), Logger()
    attach_nemo_rl(policy, logger, STATE, config={"grpo": {"num_generations_per_prompt": 2}})
    data = train_data(rollouts)
    before = tensors_of(data)
    assert policy.train(data, "loss", timer="timer") == {"loss": 0.25}
    assert policy.trained_on == [(data, "loss", "timer")]
    assert_bit_identical(before, tensors_of(data))
    (report,), columns = reported(server)
    assert (report.step, report.update, report.chunks) == (7, None, 1)
    assert_reported(columns, rollouts)
    policy.train(data, "loss")
    assert [report.step for report in reported(server, n=2)[0]] == [7, 8]


def columns_of(server: Peer, **changed: torch.Tensor) -> Columns:
    """Return the columns of a step whose data are changed."""
    policy = Policy()
    attach_nemo_rl(policy, Logger(), STATE)
    policy.train(train_data(Rollouts.generate()) | changed, "loss")
    return reported(server)[1]


def test_a_sample_that_nemo_rl_takes_out_is_an_empty_sequence(server: Peer) -> None:
    columns = columns_of(server, sample_mask=torch.tensor([1.0, 0.0, 1.0, 1.0]))
    assert columns["n_tokens"].tolist() == [LENGTHS[0], 0, *LENGTHS[2:]]


def test_zeros_in_place_of_old_log_probs_are_not_compared(server: Peer) -> None:
    assert not columns_of(server, prev_logprobs=torch.zeros(len(LENGTHS), 1 + max(LENGTHS))).pairs


def test_numbers_of_training_and_the_end_are_reported(server: Peer) -> None:
    policy, logger = Policy(), Logger()
    attach_nemo_rl(policy, logger, STATE)
    logger.log_metrics({"loss": 0.25, "text": "a"}, 7, "train")
    logger.log_metrics({"accuracy": 0.5}, 7, "validation")
    (backend,) = logger.loggers
    for name in ("log_hyperparams", "log_histogram", "log_plot"):
        getattr(backend, name)({}, 7, "name")
    backend.finish()
    assert numbers(server) == [(7, {"train/loss": 0.25})]


def test_a_checkpoint_is_reported_where_nemo_rl_moves_it(server: Peer) -> None:
    policy = Policy()
    attach_nemo_rl(policy, Logger(), STATE)
    policy.train(train_data(Rollouts.generate()), "loss")
    policy.save_checkpoint(weights_path="/runs/a/tmp_step_7/policy/weights", optimizer_path=None)
    assert checkpoints(server) == [(7, "/runs/a/step_7")]


def test_another_version_is_named_once_and_left_as_it_is(server: Peer, capfd: pytest.CaptureFixture[str]) -> None:
    class OlderPolicy(Policy):
        def train(self, batch: Any) -> Any:  # type: ignore[override]
            return batch

    logger = Logger()
    for _ in range(2):
        policy = OlderPolicy()
        attach_nemo_rl(policy, logger, STATE)
        assert policy.train("batch") == "batch"
    assert capfd.readouterr().err.count("lacks train(data, loss_fn)") == 1
    assert (logger.loggers, server.messages) == ([], [])
