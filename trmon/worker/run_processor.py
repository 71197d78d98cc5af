"""One pass over one run: reads its new messages, closes what is due, and returns what is to be written."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from msgspec import structs

from trmon.domain.alerts.alert import Alert, AlertState
from trmon.domain.batches.batch import BatchRow, QuarantinePart
from trmon.domain.findings.judge import JudgeState
from trmon.domain.findings.verdict import HISTORY_UNAVAILABLE, PREDICTION
from trmon.domain.messages import Unread
from trmon.domain.pipeline.judging import judgement_of, standing_findings
from trmon.domain.pipeline.publish import (
    Checkpoint,
    Frontier,
    RunSummary,
    RunUpdate,
    RunView,
    incident_advice,
    summary_of,
)
from trmon.domain.pipeline.state import STATE_VERSION, PassContext
from trmon.domain.pipeline.transition import apply_run_end, judge_newest_step, retire_removed_rules
from trmon.domain.runs.liveness import time_by_now
from trmon.domain.runs.run import RunState
from trmon.domain.severity import Severity
from trmon.store.repositories.run_log import RunLog
from trmon.worker.adaptation import Advisor, BoundAdaptation, run_quarantined
from trmon.worker.batch_closer import BatchCloser, apply_newest_scalars, apply_scalars
from trmon.worker.messages import (
    Damaged,
    LivenessCheck,
    LogReader,
    MessageHandler,
    MessageId,
    MessagePage,
    StoredMessage,
    message_id,
    newest_sent_at,
)
from trmon.worker.pass_changes import PassChanges, PassResult, is_checkpoint_due
from trmon.worker.recovery import recover_run
from trmon.worker.run_context import RunContext, WatchConfig
from trmon_client.api.budget import AdviceInfo, IncidentAdviceInfo

NOTHING_REPLACED: Mapping[MessageId, Damaged] = MappingProxyType({})


class RunProcessor:
    """Holds one loaded run; after any error it is discarded and a new one recovers the run from the store."""

    def __init__(self, log: RunLog, run_id: int, *, watch_config: WatchConfig, now: float) -> None:
        context = RunContext(log, run_id, watch_config=watch_config)
        self._run = run = recover_run(log, context, now=now)
        self._log = log
        self._reader = LogReader(log, run_id, read=run.frontier)
        self._written = run.frontier
        self._saved_ordinal, self._saved_at = run.checkpoint_ordinal, now
        self._judged_rows = run.pipeline_state.judge.rows
        self._is_counted = False
        """Whether it is counted that the run's history is unavailable."""
        self._grace_seconds = watch_config.grace_seconds
        self._advisor = Advisor(context.history)
        self._adaptation = BoundAdaptation(run)
        self._liveness = LivenessCheck(log, run, patience=watch_config.patience, loaded_at=now)
        self._messages = MessageHandler(run, liveness=self._liveness)
        self._summarized: tuple[BatchRow | None, JudgeState, RunSummary] | None = None
        self._told: tuple[object, IncidentAdviceInfo] | None = None
        """What the trainer is told of the open incident, and what that is made of."""
        self.alone: StoredMessage | None = None
        """The only message of the last pass, if it was to read one only."""
        self._batches = BatchCloser(
            run,
            adaptation=self._adaptation,
            grace_seconds=watch_config.grace_seconds,
            loaded_at=now,
        )

    @property
    def is_idle(self) -> bool:
        """Whether only a message can change anything: the run does not train, and nothing of it is pending."""
        waits = self._batches.due_at < math.inf or self._judging_due_at < math.inf
        is_still = self._run.life.state is not RunState.RUNNING and not waits
        return is_still and self._liveness.launches_due_at == math.inf

    @property
    def due_at(self) -> float:
        """When a pass is due without any message: at the end of a grace period or of the patience; infinity: never."""
        return min(self._batches.due_at, self._liveness.due_at, self._judging_due_at)

    @property
    def _judging_due_at(self) -> float:
        """When the newest step is judged although no later one has begun; infinity if it is."""
        pending = self._run.pipeline_state.pending
        return math.inf if pending is None else pending.at + self._grace_seconds

    @property
    def read(self) -> Frontier:
        """How far the run's messages are read."""
        return self._reader.read

    def run_pass(
        self,
        now: float,
        *,
        unread: Unread | None = None,
        at_most: int | None = None,
        replaced: Mapping[MessageId, Damaged] = NOTHING_REPLACED,
    ) -> PassResult:
        """Return the changes of one pass; the caller commits them, or discards this processor.

        Args: unread: all messages since `read`; without it the pass reads them itself; at_most: 0 or 1 message, None
        for a page; replaced: messages that failed a pass, as damaged ones.
        """
        run, changes, is_ending = self._run, PassChanges(now=now), False
        changes.tally.quarantined, run.quarantined = run.quarantined, Counter()
        run.context.refresh()
        page = self._next_page(unread, at_most)
        self.alone = page.messages[0] if at_most and page.messages else None
        found = (replaced.get(message_id(message), message) for message in page.messages)
        messages = tuple(_received_by_now(message, now=now) for message in found)
        late = self._messages.handle(messages, changes)
        context = run.context.pass_context(changes.now)
        run.apply_transitions(
            retire_removed_rules(context=context, pipeline_state=run.pipeline_state, now=now), changes
        )
        # Before any batch closes: those that close in this pass count among the steps before the next adaptation.
        self._adaptation.configure(changes)
        apply_newest_scalars(run, messages, changes)
        self._batches.close_due(changes, caught_up=page.caught_up)
        self._batches.close_scalar_steps(changes, caught_up=page.caught_up)
        self._batches.revise(late, changes)
        self._batches.confirm(changes)
        apply_scalars(run, messages, changes)
        self._adaptation.adapt(changes)
        if page.caught_up and now >= self._judging_due_at:
            context = run.context.pass_context(changes.now)
            run.apply_transitions(judge_newest_step(context=context, pipeline_state=run.pipeline_state), changes)
        if page.caught_up:
            self._liveness.check(changes)
            if is_ending := self._is_ending:
                context = run.context.pass_context(changes.now)
                run.apply_transitions(
                    apply_run_end(context=context, pipeline_state=run.pipeline_state, now=now), changes
                )
        if run.context.history.is_unavailable and not self._is_counted:
            self._is_counted = True
            changes.tally.quarantined[QuarantinePart.HISTORY] += 1
        view = self._view(now)
        # A pass without messages shows whether the database takes anything of this run.
        update = self._update(changes, view, is_ending=is_ending, must_write=at_most == 0)
        return PassResult(
            update=update,
            view=view,
            has_more=not page.caught_up,
            tally=changes.tally,
            sent_at=newest_sent_at(messages),
        )

    def _next_page(self, unread: Unread | None, at_most: int | None) -> MessagePage:
        if at_most is None:
            return self._reader.next_page() if unread is None else self._reader.page_of(unread)
        return self._reader.next_message() if at_most else MessagePage(messages=(), caught_up=False)

    def checkpoint_update(self) -> RunUpdate | None:
        """Return an update with a checkpoint alone; None if nothing has changed since the last checkpoint."""
        if self._run.pipeline_state.ordinal == self._saved_ordinal:
            return None
        return RunUpdate(run_id=self._run.id, frontier=self._written, checkpoint=self._checkpoint())

    def _view(self, now: float) -> RunView:
        run = self._run
        judgement = judgement_of(run.pipeline_state, run.context.pass_context(now))
        if judgement is not None:
            notes = (HISTORY_UNAVAILABLE,) if run.context.history.is_unavailable else ()
            judgement = structs.replace(judgement, at=now, notes=(*notes, *judgement.notes))
        return RunView(
            run=run.context.run,
            row=run.gauge_row,
            policy=run.context.policies.current,
            alerts=run.pipeline_state.open_alerts(),
            expected_step_seconds=run.pipeline_state.expected_step_seconds,
            updated_at=now,
            advice=self._advice(now),
            judgement=judgement,
            summary=self._summary(),
        )

    def _summary(self) -> RunSummary:
        """Return the summary; it is computed again only after a row has closed or was judged."""
        row, judged = self._run.gauge_row, self._run.pipeline_state.judge
        if self._summarized is None or self._summarized[0] is not row or self._summarized[1] is not judged:
            self._summarized = row, judged, summary_of({} if row is None else row.signals, judged)
        return self._summarized[2]

    def _advice(self, now: float) -> AdviceInfo | None:
        """Return the advice; firing alerts over batches that page make it advise a stop.

        An open incident is sent first, as it names the cause, but advises nothing alone: it outlasts its alerts. Nor
        does a prediction: it is no reason to stop.
        """
        run, context = self._run, self._run.context.pass_context(now)
        state, others = run.pipeline_state, {PREDICTION, *(rule.name for rule in context.rules.over_states)}
        firing = [alert for alert in state.open_alerts() if alert.state is AlertState.FIRING]
        paging = [alert for alert in firing if alert.severity is Severity.PAGE and alert.rule not in others]
        if all(alert.is_incident for alert in paging):
            paging = []
        warned = [alert for alert in firing if alert.severity is not Severity.INFO]
        warned = [alert for alert in warned if alert.is_incident or alert.rule in context.rules.of_health]
        advice = run_quarantined(
            QuarantinePart.ADVICE,
            lambda: self._advisor.advice(
                run.gauge_row,
                run=run.context.run,
                state=state,
                paging=paging,
                incident=next((alert for alert in firing if alert.is_incident), None),
            ),
            counts=run.quarantined,
            run_id=run.id,
        )
        if advice is None:
            return None
        standing = state.judge.standing
        findings = {name: standing[name].severity.value for name in sorted(standing_findings(state.judge))}
        advice = structs.replace(advice, findings=findings)
        if not warned:
            return advice
        since = min(alert.since_at for alert in warned)
        saves = not any(saved.at >= since for saved in run.context.run.checkpoints)
        return structs.replace(advice, save_checkpoint=saves, incident=self._incident_advice(warned, context))

    def _incident_advice(self, warned: Sequence[Alert], context: PassContext) -> IncidentAdviceInfo | None:
        alert = next((one for one in warned if one.is_incident), None)
        if alert is None:
            return None
        # What it is made of costs more than the pass of a run without news.
        basis = (alert.step, alert.severity, alert.summary, alert.labels, context.run.warnings, context.run.config)
        if self._told is None or self._told[0] != basis:
            self._told = (basis, incident_advice(alert, context))
        return self._told[1]

    @property
    def _is_ending(self) -> bool:
        """Whether the run has ended, and the rules have yet to judge its last step and resolve its alerts.

        False once they have: a later pass that judged the end again would wake the worker for ever.
        """
        run = self._run
        is_finished = run.life.state is RunState.FINISHED
        state = run.pipeline_state
        waits = state.provisional or state.pending is not None
        return run.is_done and bool(waits or (is_finished and state.tracks))

    def _update(self, changes: PassChanges, view: RunView, *, is_ending: bool, must_write: bool) -> RunUpdate | None:
        run = self._run
        ordinal = run.pipeline_state.ordinal
        frontier, judged_rows = run.pending.restart_frontier(self._reader.read), run.pipeline_state.judge.rows
        is_unchanged = not changes and not is_ending and not must_write
        if is_unchanged and (frontier, judged_rows) == (self._written, self._judged_rows):
            return None
        self._judged_rows = judged_rows
        checkpoint = None
        # A checkpoint always goes with a change of state, so that a restart applies no report from before it again,
        # and with an end, so that the last step is not judged twice.
        must_save = is_ending or "state" in changes.run
        unsaved, seconds = ordinal - self._saved_ordinal, changes.now - self._saved_at
        if must_save or is_checkpoint_due(unsaved, seconds=seconds, is_done=run.is_done):
            checkpoint = self._checkpoint()
            self._saved_ordinal, self._saved_at = ordinal, changes.now
        self._written = frontier
        return changes.update(view, frontier=frontier, checkpoint=checkpoint)

    def _checkpoint(self) -> Checkpoint:
        run, read = self._run, self._reader.read
        state = structs.replace(
            run.pipeline_state,
            reread_notices_after=run.pending.reread_notices_after(read, newest=run.newest_key),
            liveness_report_id=read.report_id,
            silent_since=run.life.silent_since,
        )
        return Checkpoint(ordinal=state.ordinal, version=STATE_VERSION, state=state.to_bytes())


def _received_by_now(message: StoredMessage, *, now: float) -> StoredMessage:
    received_at = time_by_now(message.received_at, now=now)
    return message if received_at == message.received_at else replace(message, received_at=received_at)
