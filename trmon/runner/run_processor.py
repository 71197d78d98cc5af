"""The keeper of one run: reads what came, closes what is due, and says what is to be written."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from msgspec import structs

from trmon.domain.advice.advise import Advice
from trmon.domain.alerts.alert import AlertState
from trmon.domain.alerts.transitions import Transition
from trmon.domain.batches.assembly import reopened_batch
from trmon.domain.batches.batch import BatchRow
from trmon.domain.batches.quarantine import Quarantined, QuarantinePart, quarantined
from trmon.domain.model.identity import BatchKey
from trmon.domain.model.messages import AnyReport, DamagedReport, StoredNotice, StoredReport, Unread
from trmon.domain.model.severity import Severity
from trmon.domain.pipeline.state_rules import (
    judge_change,
    judge_duplicate_trainers,
    judge_run_end,
    retire_removed_rules,
)
from trmon.domain.ports import RunLog
from trmon.domain.runs.liveness import LifeChange, after_notice, after_report, after_silence
from trmon.domain.runs.run import RunState
from trmon.domain.stages.detect import reconsider
from trmon.domain.stages.merge import ClosingBatch
from trmon.domain.stages.publish import BatchChanges, batch_event, publish_transitions
from trmon.domain.state.pipeline_state import PipelineState
from trmon.domain.state.run_update import Checkpoint, Frontier, RunUpdate
from trmon.runner.advisor import Advisor
from trmon.runner.bound_controller import BoundController
from trmon.runner.checkpoints import CheckpointSchedule, checkpoint_of
from trmon.runner.launch_tracker import LaunchTracker
from trmon.runner.log_reader import LogReader, Stored
from trmon.runner.pass_changes import PassChanges, PassTally
from trmon.runner.quarantine import close_or_quarantine, quarantined_in, run_quarantined
from trmon.runner.recovery import recover_run
from trmon.runner.run_context import RunContext, WatchConfig
from trmon.views.run_view_cache import RunView
from trmon_client.core import wire

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class PassResult:
    """What one pass over a run gives: what is to be written, if anything, and whether more waits to be read."""

    outcome: RunUpdate | None
    more: bool
    tally: PassTally


class RunProcessor:
    """Owns a run for as long as it lives in memory; after any error it is thrown away and made anew."""

    def __init__(self, log: RunLog, run_id: int, *, watch_config: WatchConfig, now: float) -> None:
        self._log = log
        self._watch_config = watch_config
        self._watching_since = now
        self._run_context = RunContext(log, run_id, watch_config=watch_config)
        known = recover_run(log, self._run_context.pass_context(now))
        self._pipeline_state, self._life, self._inbox = (
            known.pipeline_state,
            known.life,
            LogReader(log, run_id, read=known.frontier),
        )
        self._waiting, self._written = known.waiting, known.frontier
        self._checkpoints = CheckpointSchedule(ordinal=known.checkpoint_ordinal, now=now)
        self._gauge = log.batch(self._pipeline_state.gauge_keys[-1]) if self._pipeline_state.gauge_keys else None
        self._newest = self._pipeline_state.folded
        self._tuner, self._advisor = BoundController(log), Advisor(log)
        self._attendance = LaunchTracker(log, run_id)
        self._quarantined = known.quarantined
        self._beside: list[Quarantined] = []

    @property
    def is_done(self) -> bool:
        """Whether the run has ended and nothing of it waits."""
        return self._life.state.ended and not self._waiting.has_batches

    @property
    def is_at_rest(self) -> bool:
        """Whether only a message can change anything: the run does not train, and nothing of it waits."""
        is_still = self._life.state is not RunState.RUNNING and not self._waiting.has_batches
        return is_still and self._look_at == math.inf

    @property
    def due_at(self) -> float:
        """When the clock alone asks for a pass: at the end of a grace or of the shorter patience; infinity: never."""
        grace_ends = self._waiting.assembly.patience_ends(
            grace_seconds=self._watch_config.grace_seconds, watching_since=self._watching_since
        )
        waits = [self._look_at] if grace_ends is None else [self._look_at, grace_ends]
        if self._life.state is not RunState.RUNNING:
            return min(waits)
        patience = self._watch_config.patience.limit_seconds(
            self._pipeline_state.expected_step_seconds, heart_beats=False
        )
        silence_ends = max(self._life.silent_since, self._watching_since) + patience
        return min(*waits, silence_ends)

    @property
    def read(self) -> Frontier:
        """How far its messages are read."""
        return self._inbox.read

    def advance(self, now: float, *, mail: Unread | None = None) -> PassResult:
        """Return what one pass changes; the caller writes it, or throws the keeper away.

        Args: mail: all that came since it was read; it reads for itself without.
        """
        pass_changes, is_ending = PassChanges(), False
        pass_changes.tally.quarantined, self._quarantined = self._quarantined, Counter()
        self._run_context.refresh()
        page = self._inbox.next_page() if mail is None else self._inbox.all_of(mail)
        late = self._hear_all(page.messages, pass_changes, now=now)
        self._tell(
            retire_removed_rules(
                context=self._run_context.pass_context(now), pipeline_state=self._pipeline_state, now=now
            ),
            pass_changes,
            now=now,
        )
        # Before anything closes: what closes in this pass counts among the steps after which bounds are looked at.
        setting, current = self._run_context.adaptation, self._run_context.policies.current.policy
        self._adapt(
            lambda: self._tuner.follow(setting, current, gauge_keys=self._pipeline_state.gauge_keys), pass_changes
        )
        self._close_due(pass_changes, now=now, caught_up=page.caught_up)
        self._revise(late, pass_changes, now=now)
        self._place_scalars(page.messages, pass_changes, now=now)
        self._tune(pass_changes, now=now)
        if page.caught_up:
            self._watch_clock(pass_changes, now=now)
            self._look_around(pass_changes, now=now)
            if is_ending := self._is_ending:
                self._tell(
                    judge_run_end(
                        context=self._run_context.pass_context(now), pipeline_state=self._pipeline_state, now=now
                    ),
                    pass_changes,
                    now=now,
                )
        outcome = self._outcome(pass_changes, now=now, is_ending=is_ending)
        return PassResult(outcome=outcome, more=not page.caught_up, tally=pass_changes.tally)

    def rest(self) -> RunUpdate | None:
        """Return a checkpoint of the mind, if it has moved since the last one."""
        if not self._checkpoints.lack(self._pipeline_state):
            return None
        return RunUpdate(run_id=self._run_context.run.id, frontier=self._written, checkpoint=self._checkpoint())

    def view(self, now: float) -> RunView:
        """Return what is to be seen of the run."""
        return RunView(
            run=self._run_context.run,
            row=self._gauge,
            policy=self._run_context.policies.current,
            alerts=self._pipeline_state.open_alerts(),
            expected_step_seconds=self._pipeline_state.expected_step_seconds,
            updated_at=now,
            advice=self._advice(now),
            adaptation=self._run_context.adaptation.mode,
            proposed=self._tuner.proposed,
        )

    def _advice(self, now: float) -> Advice | None:
        """A run whose batches call somebody out of bed is advised to stop."""
        of_state = {rule.name for rule in self._run_context.pass_context(now).state_rules}
        alerts = [
            alert
            for alert in self._pipeline_state.open_alerts()
            if alert.state is AlertState.FIRING and alert.severity is Severity.PAGE and alert.rule not in of_state
        ]
        return run_quarantined(
            QuarantinePart.ADVICE,
            lambda: self._advisor.advice(
                self._gauge, run=self._run_context.run, steps=self._pipeline_state.steps, alerts=alerts
            ),
            counts=self._quarantined,
            run_id=self._run_context.run.id,
        )

    def _hear_all(
        self, messages: Iterable[Stored], pass_changes: PassChanges, *, now: float
    ) -> dict[BatchKey, BatchRow]:
        late: dict[BatchKey, BatchRow] = {}
        for message in messages:
            change = None
            if isinstance(message, StoredReport | StoredNotice):
                self._attendance.heard(message.report if isinstance(message, StoredReport) else message.message)
            if isinstance(message, StoredReport | DamagedReport):
                if message.id > self._pipeline_state.heard_through:
                    self._life, change = after_report(self._life, message)
                row = self._take(message, pass_changes)
                if row is not None:
                    late[row.key] = row
            elif isinstance(message, StoredNotice):
                self._life, change = after_notice(self._life, message)
                self._heed(message, pass_changes, now=now)
            else:
                pass_changes.tally.quarantined[QuarantinePart.NOTICE] += 1
                self._beside.append(quarantined(QuarantinePart.NOTICE, f"notice {message.id}", message.reason))
            self._turn(change, pass_changes, now=now)
        return late

    def _take(self, report: AnyReport, pass_changes: PassChanges) -> BatchRow | None:
        """Put a report to its open batch, or return the closed row that it comes too late for."""
        key = report.key.batch
        self._note_progress(report, pass_changes)
        former = (
            None if key in self._waiting.assembly.batches or self._pipeline_state.follows(key) else self._log.batch(key)
        )
        if former is None:
            self._waiting.assembly.accept(report)
            return None
        self._waiting.assembly.heard(report)
        if report.id <= former.last_report_id:
            return None
        pass_changes.tally.late_reports += 1
        return former

    def _note_progress(self, report: AnyReport, pass_changes: PassChanges) -> None:
        key = report.key.batch
        is_newest = self._newest is None or key.order > self._newest.order
        if is_newest:
            self._newest = key
        self._run_context.heard(report, pass_changes, is_newest=is_newest)

    def _heed(self, notice: StoredNotice, pass_changes: PassChanges, *, now: float) -> None:
        message = notice.message
        self._waiting.heed(notice)
        if isinstance(message, wire.Start) and message.rank == 0:
            self._introduce(notice, message, pass_changes, now=now)

    def _introduce(self, notice: StoredNotice, start: wire.Start, pass_changes: PassChanges, *, now: float) -> None:
        before = self._run_context.run
        self._run_context.introduced(notice, start, pass_changes, now=now)
        alerts, after = self._pipeline_state.open_alerts(), self._run_context.run
        pass_changes.deliveries += self._run_context.owner_change(now).deliveries(alerts, before=before, after=after)

    def _close_due(self, pass_changes: PassChanges, *, now: float, caught_up: bool) -> None:
        """While more waits to be read, nothing closes for want of patience."""
        due = self._waiting.assembly.due(
            now=now,
            grace_seconds=self._watch_config.grace_seconds if caught_up else math.inf,
            watching_since=self._watching_since,
        )
        for batch in due:
            closing = ClosingBatch(
                context=self._run_context.pass_context(now),
                pipeline_state=self._pipeline_state,
                batch=batch.decoded(),
                scalars=self._waiting.shelf.of(batch.key.attempt_id, batch.key.step),
                beside=self._taken_beside(batch.key),
            )
            self._close(closing, pass_changes)
            pass_changes.tally.close_lags_seconds.append(now - batch.newest_at)

    def _taken_beside(self, key: BatchKey) -> tuple[Quarantined, ...]:
        """The next batch that is folded tells what was set aside before it."""
        if not self._pipeline_state.follows(key):
            return ()
        beside, self._beside = tuple(self._beside), []
        return beside

    def _revise(self, late: dict[BatchKey, BatchRow], pass_changes: PassChanges, *, now: float) -> None:
        """A row stays as it is where retention has taken what it was made of: what came late is not all of it.

        Scalars that came with it are read by rules as those in messages of their own are.
        """
        for key, row in late.items():
            batch = reopened_batch(self._log.batch_reports(key)).decoded()
            if sum(report.n_sequences for report in batch.reports if report.id <= row.last_report_id) < row.n_sequences:
                continue
            closing = ClosingBatch(
                context=self._run_context.pass_context(now),
                pipeline_state=self._pipeline_state,
                batch=batch,
                former=row,
            )
            self._close(closing, pass_changes)
            # A revised row is not folded again: the next batch tells what was found damaged in it.
            found = quarantined_in(pass_changes.rows[key], closing)
            self._beside += [structs.replace(entry, place=f"step {key.step}, {entry.place}") for entry in found]
            read = structs.replace(row, scalars=pass_changes.rows[key].scalars)
            self._pipeline_state = reconsider(read, context=closing.context, pipeline_state=self._pipeline_state)

    def _close(self, closing: ClosingBatch, pass_changes: PassChanges) -> None:
        published = close_or_quarantine(closing)
        self._add(published, pass_changes)
        row = published.row
        if row is not None:
            pass_changes.tally.quarantined.update(entry.part for entry in quarantined_in(row, closing))
        if row is not None and closing.former is None:
            pass_changes.tally.mismatches += row.mismatches
        if row is not None and (published.is_gauge or (self._gauge and self._gauge.key == row.key)):
            self._gauge = row
        if published.is_gauge:
            reports, policy = closing.batch.reports, self._run_context.policies.current.policy
            self._adapt(lambda: self._tuner.take(closing.batch.key, reports, policy=policy), pass_changes)
            if row is not None:
                self._advisor.heed(row)

    def _adapt(self, act: Callable[[], T], pass_changes: PassChanges) -> T | None:
        counts, run_id = pass_changes.tally.quarantined, self._run_context.run.id
        return run_quarantined(QuarantinePart.ADAPTATION, act, counts=counts, run_id=run_id)

    def _tune(self, pass_changes: PassChanges, *, now: float) -> None:
        """Let the bounds follow the run, unless its trainer asked for a policy in this very pass."""
        run_context = self._run_context
        current, is_stalled = run_context.policies.current, self._life.state is RunState.STALLED
        if "policy" in pass_changes.run:
            return
        version = self._adapt(
            lambda: self._tuner.tuned(run_context.run, current=current, is_stalled=is_stalled, now=now), pass_changes
        )
        if version is not None:
            run_context.adopted(version, pass_changes, at=now)

    def _place_scalars(self, messages: Iterable[Stored], pass_changes: PassChanges, *, now: float) -> None:
        """Scalars of a step whose gauge row is closed revise it; those of a step to come wait."""
        new = [message for message in messages if isinstance(message, StoredNotice)]
        steps = {(n.attempt_id, n.message.step) for n in new if isinstance(n.message, wire.Scalars)}
        for attempt_id, step in sorted(steps):
            self._place(attempt_id, step, pass_changes, now=now)
        if self._pipeline_state.folded is not None:
            self._waiting.forget_scalars(self._pipeline_state.folded)

    def _place(self, attempt_id: int, step: int, pass_changes: PassChanges, *, now: float) -> None:
        key = self._pipeline_state.gauge_key(attempt_id, step) or BatchKey(attempt_id, step, None)
        if self._pipeline_state.follows(key):
            return
        row = pass_changes.rows.get(key) or self._log.batch(key)
        scalars = self._waiting.shelf.of(attempt_id, step)
        if row is None:
            pass_changes.tally.unplaced_scalars += 1
        elif scalars.items() - row.scalars.items():
            row = structs.replace(row, scalars={**row.scalars, **scalars})
            pipeline_state = reconsider(
                row, context=self._run_context.pass_context(now), pipeline_state=self._pipeline_state
            )
            self._add(
                BatchChanges(pipeline_state=pipeline_state, row=row, events=(batch_event(row, at=now),)), pass_changes
            )
            if self._gauge and self._gauge.key == key:
                self._gauge = row

    def _watch_clock(self, pass_changes: PassChanges, *, now: float) -> None:
        self._life, change = after_silence(
            self._life,
            now=now,
            watching_since=self._watching_since,
            last_seen=partial(self._log.last_seen, self._run_context.run.id),
            expected_step_seconds=self._pipeline_state.expected_step_seconds,
            patience=self._watch_config.patience,
        )
        self._turn(change, pass_changes, now=now)

    @property
    def _look_at(self) -> float:
        """Nothing fires on a finished run: who still lives is asked once somebody speaks again."""
        return math.inf if self._life.state is RunState.FINISHED else self._attendance.look_at

    def _look_around(self, pass_changes: PassChanges, *, now: float) -> None:
        if self._attendance.look_at > now:
            return
        found = self._attendance.look(now)
        if self._life.state is RunState.FINISHED:
            found = None
        self._tell(
            judge_duplicate_trainers(
                found, context=self._run_context.pass_context(now), pipeline_state=self._pipeline_state, now=now
            ),
            pass_changes,
            now=now,
        )

    def _turn(self, change: LifeChange | None, pass_changes: PassChanges, *, now: float) -> None:
        if change is None:
            return
        self._run_context.turned(change, pass_changes)
        run = self._run_context.run
        key = self._newest or BatchKey(run.attempt_id or 0, run.last_step or 0, None)
        self._tell(
            judge_change(
                change, context=self._run_context.pass_context(now), pipeline_state=self._pipeline_state, key=key
            ),
            pass_changes,
            now=now,
        )

    def _tell(
        self, judged: tuple[tuple[Transition, ...], PipelineState], pass_changes: PassChanges, *, now: float
    ) -> None:
        transitions, self._pipeline_state = judged
        if transitions:
            self._add(
                publish_transitions(
                    transitions, context=self._run_context.pass_context(now), pipeline_state=self._pipeline_state
                ),
                pass_changes,
            )

    def _add(self, published: BatchChanges, pass_changes: PassChanges) -> None:
        self._pipeline_state = published.pipeline_state
        pass_changes.add(published)

    @property
    def _is_ending(self) -> bool:
        """Whether the run has ended, and that is not yet said of its last step or of alerts that an end resolves.

        Once it is, no later pass says it again: one that did would wake the worker for ever.
        """
        is_finished = self._life.state is RunState.FINISHED
        return self.is_done and bool(self._pipeline_state.provisional or (is_finished and self._pipeline_state.tracks))

    def _outcome(self, pass_changes: PassChanges, *, now: float, is_ending: bool) -> RunUpdate | None:
        frontier = self._waiting.settled(self._inbox.read)
        if not pass_changes and not is_ending and frontier == self._written:
            return None
        made = None
        # A change of state is always in a checkpoint, so that no report from before it is heard again after it, and so
        # is an end, so that the last step is not judged twice.
        changed = is_ending or "state" in pass_changes.run
        if changed or self._checkpoints.is_due(self._pipeline_state, now=now, is_done=self.is_done):
            made = self._checkpoint()
            self._checkpoints.made(self._pipeline_state, now=now)
        self._written = frontier
        return pass_changes.outcome(self._run_context.run.id, frontier=frontier, checkpoint=made)

    def _checkpoint(self) -> Checkpoint:
        recall_from = self._waiting.recall_from(self._inbox.read, newest=self._newest)
        heard_through, silent_since = self._inbox.read.report_id, self._life.silent_since
        return checkpoint_of(
            self._pipeline_state, recall_from=recall_from, heard_through=heard_through, silent_since=silent_since
        )
