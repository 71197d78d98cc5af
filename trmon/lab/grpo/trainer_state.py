"""The state of a trainer between two updates: everything that decides how its run goes on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from trmon.lab.grpo.clean_evaluation import NOT_EVALUATED, EvaluatedPolicy

ENGINE_STREAM, LEARNER_STREAM = 1, 2
"""The streams of a run's randomness: sampling in the rollout engine; prompts and minibatches."""


@dataclass(frozen=True, eq=False, kw_only=True)
class TrainerState:
    """A copy of a trainer's state before `next_update`.

    `weights` and `optimizer` are what was learned, `published` the versions that a lagging engine may still load,
    oldest first; the streams are states of generators; `evaluated` is the evaluation in force. The engine loads its
    weights at every update, and has no other state.
    """

    next_update: int
    weights: Mapping[str, Tensor]
    optimizer: dict[str, Any]
    published: tuple[tuple[int, dict[str, Tensor]], ...]
    learner_stream: Tensor
    engine_stream: Tensor
    evaluated: EvaluatedPolicy

    def rolled_back(self, checkpoint: TrainerState) -> TrainerState:
        """Return the state with what the run had learned at a checkpoint, while data, ramps and time go on.

        The rollout engine restarts with the weights of the checkpoint: older versions are gone.
        The next update evaluates.
        """
        return replace(
            self,
            weights=checkpoint.weights,
            optimizer=checkpoint.optimizer,
            published=(),
            evaluated=NOT_EVALUATED,
        )

    def reseeded(self, seed: int) -> TrainerState:
        """Return the state with the streams of another seed."""
        return replace(
            self,
            learner_stream=random_stream(seed, LEARNER_STREAM).get_state(),
            engine_stream=random_stream(seed, ENGINE_STREAM).get_state(),
        )


def random_stream(seed: int, stream: int, *, device: torch.device | None = None) -> torch.Generator:
    """Return the generator of one stream of a run's randomness, on a device; default: the CPU."""
    return torch.Generator(device or "cpu").manual_seed(seed * 1000 + stream)
