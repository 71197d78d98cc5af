"""Checkpoints: when a run's mind is written again, so that a restart folds few rows."""

from __future__ import annotations

from msgspec import structs

from trmon.domain.state.pipeline_state import STATE_VERSION, PipelineState
from trmon.domain.state.run_update import Checkpoint

CHECKPOINT_BATCHES = 64
CHECKPOINT_SECONDS = 30.0
LEAST_CHECKPOINT_BATCHES = 8
"""Fewer are folded again in less time than a checkpoint of each step takes to write, where steps are far apart."""


class CheckpointSchedule:
    """Knows which batch the newest checkpoint of a run has reached, and when."""

    def __init__(self, *, ordinal: int, now: float) -> None:
        self._ordinal = ordinal
        self._at = now

    def lack(self, pipeline_state: PipelineState) -> int:
        """Return how many batches the mind has folded since the newest one."""
        return pipeline_state.ordinal - self._ordinal

    def is_due(self, pipeline_state: PipelineState, *, now: float, is_done: bool) -> bool:
        """Whether it is time for the next one. Args: is_done: nothing more of the run will be folded."""
        lacking = self.lack(pipeline_state)
        is_late = lacking >= LEAST_CHECKPOINT_BATCHES and now - self._at >= CHECKPOINT_SECONDS
        return lacking >= CHECKPOINT_BATCHES or is_late or (lacking > 0 and is_done)

    def made(self, pipeline_state: PipelineState, *, now: float) -> None:
        """Note that one was made of this mind."""
        self._ordinal, self._at = pipeline_state.ordinal, now


def checkpoint_of(
    pipeline_state: PipelineState, *, recall_from: int, heard_through: int, silent_since: float
) -> Checkpoint:
    """Return a mind as it is written: after which notice a restart reads again, which reports it heard, and since when
    the run was silent.
    """
    known = {"recall_from": recall_from, "heard_through": heard_through, "silent_since": silent_since}
    state = structs.replace(pipeline_state, **known).to_bytes()
    return Checkpoint(ordinal=pipeline_state.ordinal, version=STATE_VERSION, state=state)
