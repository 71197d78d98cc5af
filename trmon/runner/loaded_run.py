"""The state of one run in memory, which the steps of a pass share and change."""

from __future__ import annotations

from dataclasses import dataclass, field

from trmon.domain.alerts.transitions import Transition
from trmon.domain.batches.batch import BatchRow, Quarantined
from trmon.domain.context.pass_context import PassContext
from trmon.domain.model.identity import BatchKey
from trmon.domain.pipeline.stages.publish import BatchChanges, publish_transitions
from trmon.domain.pipeline.state_rules import apply_state_change
from trmon.domain.ports import RunLog
from trmon.domain.runs.liveness import Liveness, StateChange
from trmon.domain.state.pipeline_state import PipelineState
from trmon.runner.pass_changes import PassChanges
from trmon.runner.pending_state import PendingState
from trmon.runner.recovery import RecoveredRun
from trmon.runner.run_context import RunContext


@dataclass(slots=True, kw_only=True)
class LoadedRun:
    """A run, its pipeline state and its pending batches.

    `gauge_row` is the newest row that gauges show, `newest_key` the newest batch of which a report came, and
    `unreported` what was quarantined since the last closed batch: the next one names it. `reporting` are the attempts
    of which a report came: scalars of theirs make no rows of their own.
    """

    context: RunContext
    pipeline_state: PipelineState
    life: Liveness
    pending: PendingState
    gauge_row: BatchRow | None
    newest_key: BatchKey | None
    unreported: list[Quarantined] = field(default_factory=list)
    reporting: set[int] = field(default_factory=set)

    @classmethod
    def of(cls, recovered: RecoveredRun, context: RunContext, log: RunLog) -> LoadedRun:
        """Return a run as recovery has read it."""
        state = recovered.pipeline_state
        folded = None if state.folded is None else log.batch(state.folded)
        return cls(
            context=context,
            pipeline_state=state,
            life=recovered.life,
            pending=recovered.pending,
            gauge_row=log.batch(state.gauge_keys[-1]) if state.gauge_keys else None,
            newest_key=state.folded,
            reporting={folded.key.attempt_id} if folded is not None and not folded.has_scalars_only else set(),
        )

    @property
    def id(self) -> int:
        """The run's id."""
        return self.context.run.id

    @property
    def is_done(self) -> bool:
        """Whether the run has ended and no batch is open."""
        return self.life.state.ended and not self.pending.has_batches

    def pass_context(self, changes: PassChanges) -> PassContext:
        """Return the context of the pipeline in this pass."""
        return self.context.pass_context(changes.now)

    def apply(self, published: BatchChanges, changes: PassChanges) -> None:
        """Adopt the state after a batch or a transition, and add its output to the pass."""
        self.pipeline_state = published.pipeline_state
        changes.add(published)

    def apply_transitions(self, judged: tuple[tuple[Transition, ...], PipelineState], changes: PassChanges) -> None:
        """Adopt the state after rules over the run itself, and add their alerts to the pass."""
        transitions, self.pipeline_state = judged
        if transitions:
            context = self.pass_context(changes)
            self.apply(publish_transitions(transitions, context=context, pipeline_state=self.pipeline_state), changes)

    def apply_state_change(self, change: StateChange | None, changes: PassChanges) -> None:
        """Record a change of the run's state, and evaluate the rules over states."""
        if change is None:
            return
        self.context.record_state(change, changes)
        run = self.context.run
        key = self.newest_key or BatchKey(run.attempt_id or 0, run.last_step or 0, None)
        context = self.pass_context(changes)
        self.apply_transitions(
            apply_state_change(change, context=context, pipeline_state=self.pipeline_state, key=key), changes
        )
