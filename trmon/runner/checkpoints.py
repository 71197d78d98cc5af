"""Decides when a run's pipeline state is checkpointed, so that a restart replays few rows."""

from __future__ import annotations

from msgspec import structs

from trmon.domain.state.pipeline_state import STATE_VERSION, PipelineState
from trmon.domain.state.run_update import Checkpoint

CHECKPOINT_BATCHES = 64
CHECKPOINT_SECONDS = 30.0
LEAST_CHECKPOINT_BATCHES = 8
"""Fewer rows are replayed in less time than a checkpoint after each step takes, where steps are far apart."""


class CheckpointSchedule:
    """Remembers the batch and the time of a run's newest checkpoint."""

    def __init__(self, *, ordinal: int, now: float) -> None:
        self._ordinal = ordinal
        self._at = now

    def unsaved_batches(self, pipeline_state: PipelineState) -> int:
        """Return how many batches the state contains beyond the newest checkpoint."""
        return pipeline_state.ordinal - self._ordinal

    def is_due(self, pipeline_state: PipelineState, *, now: float, is_done: bool) -> bool:
        """Whether the next checkpoint is due. Args: is_done: the run has ended and nothing of it is pending."""
        unsaved = self.unsaved_batches(pipeline_state)
        is_late = unsaved >= LEAST_CHECKPOINT_BATCHES and now - self._at >= CHECKPOINT_SECONDS
        return unsaved >= CHECKPOINT_BATCHES or is_late or (unsaved > 0 and is_done)

    def record(self, pipeline_state: PipelineState, *, now: float) -> None:
        """Remember a checkpoint of this state."""
        self._ordinal, self._at = pipeline_state.ordinal, now


def checkpoint_of(
    pipeline_state: PipelineState, *, reread_notices_after: int, liveness_report_id: int, silent_since: float
) -> Checkpoint:
    """Return a checkpoint of a state.

    Args: reread_notices_after: the notice after which a restart reads again; liveness_report_id: the newest report that
    the run's state reflects; silent_since: when the newest message came.
    """
    known = {
        "reread_notices_after": reread_notices_after,
        "liveness_report_id": liveness_report_id,
        "silent_since": silent_since,
    }
    state = structs.replace(pipeline_state, **known).to_bytes()
    return Checkpoint(ordinal=pipeline_state.ordinal, version=STATE_VERSION, state=state)
