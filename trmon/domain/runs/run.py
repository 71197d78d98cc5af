"""Runs, their states and their attempts."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any

from trmon.domain.model.identity import RunKey
from trmon.domain.runs.attempts import Resolution
from trmon.domain.runs.run_ending import NO_EXIT, RunEnding, RunWarning


class RunState(Enum):
    """The state of a run."""

    RUNNING = "running"
    PAUSED = "paused"
    STALLED = "stalled"
    CRASHED = "crashed"
    FINISHED = "finished"

    @property
    def ended(self) -> bool:
        """Whether the trainer has sent its end."""
        return self in (RunState.CRASHED, RunState.FINISHED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A stored run; times are seconds since the epoch on the server's clock.

    `ending` is the newest end that its trainer reported, of a former start if the run goes on.
    """

    id: int
    key: RunKey
    state: RunState
    owner: str | None
    tags: tuple[str, ...]
    config: dict[str, Any]
    mode: str
    created_at: float
    last_report_at: float | None
    last_step: int | None
    attempt_id: int | None
    archived: bool = False
    ending: RunEnding | None = None
    warnings: tuple[RunWarning, ...] = ()

    @property
    def end_phrase(self) -> str | None:
        """How the run ended, in a few words; None while it goes on, and for an end that names no reason."""
        if self.state is RunState.STALLED:
            return NO_EXIT
        return self.ending.phrase or None if self.ending is not None and self.state.ended else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One start of the trainer of a run; a restart that goes back in steps creates a new attempt."""

    id: int
    run_id: int
    name: str
    ordinal: int
    started_at: float
    world_size: int
    fork_of: int | None = None
    fork_reason: Resolution | None = None
    ranks_unverified: bool = False
