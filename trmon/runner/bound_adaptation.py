"""Calibrates and adapts a run's bounds in each pass; an error in it is quarantined and does not stop the run."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from trmon.domain.batches.batch import QuarantinePart
from trmon.domain.pipeline.stages.merge import ClosingBatch
from trmon.domain.ports import RunLog
from trmon.domain.runs.run import RunState
from trmon.runner.bound_controller import BoundController
from trmon.runner.calibrator import Calibrator
from trmon.runner.loaded_run import LoadedRun
from trmon.runner.pass_changes import PassChanges
from trmon.runner.quarantine import run_quarantined
from trmon_client.core.policies.policy import Policy

T = TypeVar("T")


class BoundAdaptation:
    """Feeds the calibrator and the bound controller with the run's batches, and adopts the versions they propose."""

    def __init__(self, log: RunLog, run: LoadedRun) -> None:
        self._run = run
        self._controller = BoundController(log)
        self._calibrator = Calibrator(log)

    @property
    def proposed(self) -> Policy | None:
        """The policy that the controller recommends; None where the bounds should stay."""
        return self._controller.proposed

    def configure(self, changes: PassChanges) -> None:
        """Give the controller the run's current setting and policy."""
        context = self._run.context
        setting, current = context.adaptation, context.policies.current.policy
        keys = self._run.pipeline_state.gauge_keys
        self._guard(lambda: self._controller.configure(setting, current, gauge_keys=keys), changes)
        run, version, ordinal = context.run, context.policies.current, self._run.pipeline_state.ordinal
        self._guard(lambda: self._calibrator.configure(run, version, ordinal=ordinal), changes)

    def add_batch(self, closing: ClosingBatch, changes: PassChanges) -> None:
        """Add a batch that gauges read to the controller's window."""
        key, reports = closing.batch.key, closing.batch.reports
        policy = self._run.context.policies.current.policy
        self._guard(lambda: self._controller.add_batch(key, reports, policy=policy), changes)

    def adapt(self, changes: PassChanges) -> None:
        """Adopt new bounds if there are some, unless the trainer asked for a policy in this pass."""
        rows = list(changes.rows.values())
        self._guard(lambda: self._calibrator.add_rows(rows), changes)
        if "policy" in changes.run:
            return
        context, is_stalled = self._run.context, self._run.life.state is RunState.STALLED
        current, state = context.policies.current, self._run.pipeline_state
        version = self._guard(
            lambda: self._calibrator.next_version(context.pass_context(changes.now), state=state, rows=rows), changes
        ) or self._guard(
            lambda: self._controller.next_version(context.run, current=current, is_stalled=is_stalled, now=changes.now),
            changes,
        )
        if version is not None:
            context.adopt_policy(version, changes, at=changes.now)

    def _guard(self, act: Callable[[], T], changes: PassChanges) -> T | None:
        counts, run_id = changes.tally.quarantined, self._run.id
        return run_quarantined(QuarantinePart.ADAPTATION, act, counts=counts, run_id=run_id)
