"""Checks by the clock whether a run is stalled, and whether two trainers report under its name."""

from __future__ import annotations

import math
from functools import partial

from trmon.domain.pipeline.state_rules import apply_duplicate_trainers
from trmon.domain.ports import RunLog
from trmon.domain.runs.liveness import SilenceLimits, after_silence
from trmon.domain.runs.run import RunState
from trmon.runner.launch_tracker import LaunchTracker
from trmon.runner.loaded_run import LoadedRun
from trmon.runner.pass_changes import PassChanges


class LivenessCheck:
    """Checks one run, and says when the next check is due."""

    def __init__(self, log: RunLog, run: LoadedRun, *, patience: SilenceLimits, loaded_at: float) -> None:
        """Args: loaded_at: silence counts from then on."""
        self._log = log
        self._run = run
        self._patience = patience
        self._loaded_at = loaded_at
        self.launches = LaunchTracker(log, run.id)

    @property
    def due_at(self) -> float:
        """When a check is due without any message; infinity: never."""
        run = self._run
        if run.life.state is not RunState.RUNNING:
            return self.launches_due_at
        limit = self._patience.limit_seconds(run.pipeline_state.expected_step_seconds, has_heartbeat=False)
        return min(self.launches_due_at, max(run.life.silent_since, self._loaded_at) + limit)

    @property
    def launches_due_at(self) -> float:
        """When the launches are checked; never for a finished run, on which no alert fires."""
        return math.inf if self._run.life.state is RunState.FINISHED else self.launches.next_check_at

    def check(self, changes: PassChanges) -> None:
        """Record a stall, and raise or resolve the alert of two trainers."""
        self._check_silence(changes)
        self._check_launches(changes)

    def _check_silence(self, changes: PassChanges) -> None:
        run = self._run
        run.life, change = after_silence(
            run.life,
            now=changes.now,
            watching_since=self._loaded_at,
            last_seen=partial(self._log.last_seen, run.id),
            expected_step_seconds=run.pipeline_state.expected_step_seconds,
            limits=self._patience,
        )
        run.apply_state_change(change, changes)

    def _check_launches(self, changes: PassChanges) -> None:
        run = self._run
        if self.launches.next_check_at > changes.now:
            return
        found = self.launches.check(changes.now)
        if run.life.state is RunState.FINISHED:
            found = None
        context = run.pass_context(changes)
        run.apply_transitions(
            apply_duplicate_trainers(found, context=context, pipeline_state=run.pipeline_state, now=changes.now),
            changes,
        )
