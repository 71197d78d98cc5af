"""An RLOOTrainer with trmon attached, and the log-probs of vLLM on TRL's own path from the engine to the loss."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from trl import GRPOTrainer

from tests.peers.trl import tiny
from tests.peers.trl.conftest import Received
from tests.peers.trl.test_enforced import NOTHING
from tests.peers.trl.tiny import are_equal, parameters_of
from trmon_client.core import wire


@pytest.mark.parametrize("given", [{}, {"num_iterations": 2, "gradient_accumulation_steps": 2, "beta": 0.1}], ids=str)
def test_observed_training_is_equal_to_the_last_bit(tmp_path: Path, received: Received, given: dict[str, Any]) -> None:
    alone = tiny.rloo(tmp_path, **given)
    alone.train()
    watched = received.train(tiny.rloo(tmp_path, **given))
    assert are_equal(parameters_of(watched), parameters_of(alone))
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
    trainer = tiny.rloo(tmp_path, num_iterations=2)
    before = parameters_of(trainer)
    received.train(trainer, mode="enforce", policy=NOTHING)
    assert are_equal(parameters_of(trainer), before)
    bits = [wire.unpack_bits(report.accepted, tiny.BATCH) for report in received.of(wire.Report)]
    assert not np.any(bits)


class Engine:
    """Samples from weights that it copies when it is synchronised, and returns log-probs as `VLLMGeneration` does.

    Server and colocated mode differ within that class: the trainers drive both alike.
    """

    def __init__(self, trainer: Any, logprobs: int | None = 0) -> None:
        self._trainer, self.logprobs = trainer, logprobs
        self._weights: dict[str, torch.Tensor] = {}
        self.synchronised_at: list[int] = []

    def sync_weights(self) -> None:
        self.synchronised_at.append(self._trainer.state.global_step)
        self._weights = {name: weight.clone() for name, weight in self._trainer.model.state_dict().items()}

    @torch.no_grad()
    def generate(self, *, prompts: list[Any], **_: Any) -> tuple[Any, ...]:
        """Return the ids of prompts and completions, log-probs if asked for, and nothing more."""
        are_texts = isinstance(prompts[0], str)
        ids = self._trainer.processing_class(prompts)["input_ids"] if are_texts else prompts
        completions = torch.randint(3, len(tiny.WORDS), (len(ids), tiny.LENGTH))
        rows = torch.cat([torch.tensor(ids), completions], dim=1)
        logits = torch.func.functional_call(self._trainer.model, self._weights, rows).logits / self._trainer.temperature
        scored = logits.log_softmax(-1)[:, -tiny.LENGTH - 1 : -1].gather(-1, completions[..., None])
        logprobs = None if self.logprobs is None else (scored[..., 0] if are_texts else scored).tolist()
        return ids, completions.tolist(), logprobs, {}


def with_vllm(trainer: Any, **asked: Any) -> Any:
    """Return the trainer as `use_vllm=True` makes it where vLLM is installed. Args: asked: `logprobs` of the engine."""
    trainer.use_vllm, trainer._last_loaded_step = True, -1
    trainer.vllm_generation = Engine(trainer, **asked)
    return trainer


@pytest.mark.parametrize("mode", ["server", "colocate"])
def test_its_log_probs_and_the_step_of_its_weights_arrive(tmp_path: Path, received: Received, mode: str) -> None:
    trainer = with_vllm(tiny.grpo(tmp_path, kind=GRPOTrainer, num_iterations=2, temperature=0.9, vllm_mode=mode))
    received.train(trainer)
    assert trainer.vllm_generation.synchronised_at == [0, 2]
    assert received.keys == [(0, 0, 0, 1), (0, 1, 0, 1), (2, 0, 0, 1), (2, 1, 0, 1)]
    assert_log_probs_of_the_engine(received)


def assert_log_probs_of_the_engine(received: Received) -> None:
    """Check that its log-probs and versions arrived: it has the trainer's weights and temperature."""
    for report, columns in zip(received.of(wire.Report), received.columns, strict=True):
        assert columns.pairs == ("mismatch", "staleness", "total")
        assert columns["version_min"].tolist() == [report.step] * tiny.BATCH
        assert np.abs(columns["mismatch_sum_d"]).max() < 1e-4


def test_rloo_drops_its_log_probs_and_they_arrive(tmp_path: Path, received: Received) -> None:
    # TRL 1 asks vLLM for none in RLOO; 0.28 asks for them, as for GRPO.
    given = {"num_iterations": 2, "gradient_accumulation_steps": 2, "temperature": 0.9}
    trainer = with_vllm(tiny.rloo(tmp_path, **given), logprobs=None if tiny.VERSION >= (1, 0) else 0)
    received.train(trainer)
    assert received.keys == [(step, update, chunk, 2) for step in (0, 2) for update in range(2) for chunk in range(2)]
    assert_log_probs_of_the_engine(received)


def test_rloo_trains_alike_with_log_probs_that_it_drops(tmp_path: Path, received: Received) -> None:
    alone = with_vllm(tiny.rloo(tmp_path))
    alone.train()
    watched = received.train(with_vllm(tiny.rloo(tmp_path)))
    assert are_equal(parameters_of(watched), parameters_of(alone))
