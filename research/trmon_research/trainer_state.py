"""A trainer whose state can be captured, and runs that go on from a state: bit for bit, rolled back, or reseeded."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

from trmon.lab.grpo.experiment_config import ExperimentConfig
from trmon.lab.grpo.grpo_trainer import ENGINE_STREAM, LEARNER_STREAM, UpdateOutcome, random_stream
from trmon.lab.grpo.supervised_start import NOT_EVALUATED, EvaluatedPolicy
from trmon_research.testbed import StudyTrainer


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


class ResumableTrainer(StudyTrainer):
    """A trainer whose state can be captured, and which continues from one."""

    def capture(self, next_update: int) -> TrainerState:
        """Return a copy of the state before an update."""
        return TrainerState(
            next_update=next_update,
            weights=self._policy.copied_weights(),
            optimizer=deepcopy(self._optimizer.state_dict()),
            published=tuple(self._published),
            learner_stream=self._generator.get_state(),
            engine_stream=self._engine_generator.get_state(),
            evaluated=self._evaluated,
        )

    def restore(self, state: TrainerState) -> None:
        """Take over a copied state, also one of a trainer with another configuration of the same policy."""
        self._policy.load_state_dict(state.weights)
        # Loading keeps the given tensors, which the optimizer then changes in place.
        self._optimizer.load_state_dict(deepcopy(state.optimizer))
        self._published.clear()
        self._published.extend(state.published)
        self._generator.set_state(state.learner_stream)
        self._engine_generator.set_state(state.engine_stream)
        self._evaluated = state.evaluated


def continue_experiment(config: ExperimentConfig, monitor: Any, *, start: TrainerState) -> Iterator[UpdateOutcome]:
    """Train as configured from a state of a trainer of the same policy, and yield every update as it ends."""
    trainer = ResumableTrainer(config, monitor)
    trainer.restore(start)
    yield from map(trainer.run_update, range(start.next_update, config.n_updates))
