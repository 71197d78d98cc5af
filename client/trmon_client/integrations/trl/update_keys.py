"""The step, update and chunks under which TRL's trainers report a micro-batch."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class UpdateKey:
    """The optimizer step of the generation, the update since then, and how many micro-batches it has, if known."""

    step: int
    update: int
    chunks: int | None


class UpdateKeys:
    """Numbers micro-batches; those of one optimizer step may belong to two rollout batches.

    Args: calls_per_rollout: how many micro-batches a rollout batch is used for.
    """

    def __init__(self, *, calls_per_rollout: int) -> None:
        self._calls_per_rollout = calls_per_rollout
        self._calls = 0
        self._rollout_step = 0
        self._open_step: int | None = None
        self._chunks: int | None = None

    @property
    def rollout_step(self) -> int:
        """The optimizer step at which the newest rollouts were generated."""
        return self._rollout_step

    def begin_rollout(self, global_step: int) -> None:
        """Note that rollouts are generated now."""
        self._rollout_step, self._calls = global_step, 0

    def next(self, global_step: int, *, chunks: int | None) -> UpdateKey:
        """Return the key of a micro-batch. Args: chunks: of this optimizer step; None where it may be cut short."""
        if global_step != self._open_step:
            left = self._calls_per_rollout - self._calls
            is_of_one_update = self._rollout_step == global_step or (chunks is not None and chunks <= left)
            self._open_step, self._chunks = global_step, chunks if is_of_one_update else None
        self._calls += 1
        return UpdateKey(self._rollout_step, global_step - self._rollout_step, self._chunks)
