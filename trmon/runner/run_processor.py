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
from trmon.domain.batches.assembly import seen_again
from trmon.domain.batches.batch import BatchRow
from trmon.domain.batches.quarantine import Quarantined, QuarantinePart, quarantined
from trmon.domain.model.identity import BatchKey
from trmon.domain.model.messages import AnyReport, DamagedReport, Mail, StoredNotice, StoredReport
from trmon.domain.model.severity import Severity
from trmon.domain.pipeline.state_rules import at_rest, judge_change, judge_company, retire
from trmon.domain.ports import RunLog
from trmon.domain.runs.liveness import LifeChange, heard_notice, heard_report, watched
from trmon.domain.runs.run import RunState
from trmon.domain.stages.detect import reconsider
from trmon.domain.stages.merge import Closing
from trmon.domain.stages.publish import Published, batch_event, tell
from trmon.domain.state.pipeline_state import RunMind
from trmon.domain.state.run_update import Checkpoint, Frontier, Outcome
from trmon.runner.advisor import Advisor
from trmon.runner.bound_controller import Tuner
from trmon.runner.checkpoints import Checkpoints, checkpoint
from trmon.runner.launch_tracker import Attendance
from trmon.runner.log_reader import Inbox, Stored
from trmon.runner.pass_changes import Ledger, Tally
from trmon.runner.quarantine import confined, judged, set_aside
from trmon.runner.recovery import recall
from trmon.runner.run_context import Portrait, Vigil
from trmon.views.run_view_cache import RunView
from trmon_client.core import wire

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Pass:
    """What one pass over a run gives: what is to be written, if anything, and whether more waits to be read."""

    outcome: Outcome | None
    more: bool
    tally: Tally


class RunKeeper:
    """Owns a run for as long as it lives in memory; after any error it is thrown away and made anew."""

    def __init__(self, log: RunLog, run_id: int, *, vigil: Vigil, now: float) -> None:
        self._log = log
        self._vigil = vigil
        self._watching_since = now
        self._portrait = Portrait(log, run_id, vigil=vigil)
        known = recall(log, self._portrait.watch(now))
        self._mind, self._life, self._inbox = known.mind, known.life, Inbox(log, run_id, read=known.frontier)
        self._waiting, self._written = known.waiting, known.frontier
        self._checkpoints = Checkpoints(ordinal=known.checkpoint_ordinal, now=now)
        self._gauge = log.batch(self._mind.gauge_keys[-1]) if self._mind.gauge_keys else None
        self._newest = self._mind.folded
        self._tuner, self._advisor = Tuner(log), Advisor(log)
        self._attendance = Attendance(log, run_id)
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
            grace_seconds=self._vigil.grace_seconds, watching_since=self._watching_since
        )
        waits = [self._look_at] if grace_ends is None else [self._look_at, grace_ends]
        if self._life.state is not RunState.RUNNING:
            return min(waits)
        patience = self._vigil.patience.limit_seconds(self._mind.expected_step_seconds, heart_beats=False)
        silence_ends = max(self._life.silent_since, self._watching_since) + patience
        return min(*waits, silence_ends)

    @property
    def read(self) -> Frontier:
        """How far its messages are read."""
        return self._inbox.read

    def advance(self, now: float, *, mail: Mail | None = None) -> Pass:
        """Return what one pass changes; the caller writes it, or throws the keeper away.

        Args: mail: all that came since it was read; it reads for itself without.
        """
        ledger, is_ending = Ledger(), False
        ledger.tally.quarantined, self._quarantined = self._quarantined, Counter()
        self._portrait.refresh()
        page = self._inbox.next_page() if mail is None else self._inbox.all_of(mail)
        late = self._hear_all(page.messages, ledger, now=now)
        self._tell(retire(watch=self._portrait.watch(now), mind=self._mind, now=now), ledger, now=now)
        # Before anything closes: what closes in this pass counts among the steps after which bounds are looked at.
        setting, current = self._portrait.adaptation, self._portrait.policies.current.policy
        self._adapt(lambda: self._tuner.follow(setting, current, gauge_keys=self._mind.gauge_keys), ledger)
        self._close_due(ledger, now=now, caught_up=page.caught_up)
        self._revise(late, ledger, now=now)
        self._place_scalars(page.messages, ledger, now=now)
        self._tune(ledger, now=now)
        if page.caught_up:
            self._watch_clock(ledger, now=now)
            self._look_around(ledger, now=now)
            if is_ending := self._is_ending:
                self._tell(at_rest(watch=self._portrait.watch(now), mind=self._mind, now=now), ledger, now=now)
        outcome = self._outcome(ledger, now=now, is_ending=is_ending)
        return Pass(outcome=outcome, more=not page.caught_up, tally=ledger.tally)

    def rest(self) -> Outcome | None:
        """Return a checkpoint of the mind, if it has moved since the last one."""
        if not self._checkpoints.lack(self._mind):
            return None
        return Outcome(run_id=self._portrait.run.id, frontier=self._written, checkpoint=self._checkpoint())

    def view(self, now: float) -> RunView:
        """Return what is to be seen of the run."""
        return RunView(
            run=self._portrait.run,
            row=self._gauge,
            policy=self._portrait.policies.current,
            alerts=self._mind.open_alerts(),
            expected_step_seconds=self._mind.expected_step_seconds,
            updated_at=now,
            advice=self._advice(now),
            adaptation=self._portrait.adaptation.mode,
            proposed=self._tuner.proposed,
        )

    def _advice(self, now: float) -> Advice | None:
        """A run whose batches call somebody out of bed is advised to stop."""
        of_state = {rule.name for rule in self._portrait.watch(now).state_rules}
        alerts = [
            alert
            for alert in self._mind.open_alerts()
            if alert.state is AlertState.FIRING and alert.severity is Severity.PAGE and alert.rule not in of_state
        ]
        return confined(
            QuarantinePart.ADVICE,
            lambda: self._advisor.advice(self._gauge, run=self._portrait.run, steps=self._mind.steps, alerts=alerts),
            counts=self._quarantined,
            run_id=self._portrait.run.id,
        )

    def _hear_all(self, messages: Iterable[Stored], ledger: Ledger, *, now: float) -> dict[BatchKey, BatchRow]:
        late: dict[BatchKey, BatchRow] = {}
        for message in messages:
            change = None
            if isinstance(message, StoredReport | StoredNotice):
                self._attendance.heard(message.report if isinstance(message, StoredReport) else message.message)
            if isinstance(message, StoredReport | DamagedReport):
                if message.id > self._mind.heard_through:
                    self._life, change = heard_report(self._life, message)
                row = self._take(message, ledger)
                if row is not None:
                    late[row.key] = row
            elif isinstance(message, StoredNotice):
                self._life, change = heard_notice(self._life, message)
                self._heed(message, ledger, now=now)
            else:
                ledger.tally.quarantined[QuarantinePart.NOTICE] += 1
                self._beside.append(quarantined(QuarantinePart.NOTICE, f"notice {message.id}", message.reason))
            self._turn(change, ledger, now=now)
        return late

    def _take(self, report: AnyReport, ledger: Ledger) -> BatchRow | None:
        """Put a report to its open batch, or return the closed row that it comes too late for."""
        key = report.key.batch
        self._note_progress(report, ledger)
        former = None if key in self._waiting.assembly.batches or self._mind.follows(key) else self._log.batch(key)
        if former is None:
            self._waiting.assembly.accept(report)
            return None
        self._waiting.assembly.heard(report)
        if report.id <= former.last_report_id:
            return None
        ledger.tally.late_reports += 1
        return former

    def _note_progress(self, report: AnyReport, ledger: Ledger) -> None:
        key = report.key.batch
        is_newest = self._newest is None or key.order > self._newest.order
        if is_newest:
            self._newest = key
        self._portrait.heard(report, ledger, is_newest=is_newest)

    def _heed(self, notice: StoredNotice, ledger: Ledger, *, now: float) -> None:
        message = notice.message
        self._waiting.heed(notice)
        if isinstance(message, wire.Start) and message.rank == 0:
            self._introduce(notice, message, ledger, now=now)

    def _introduce(self, notice: StoredNotice, start: wire.Start, ledger: Ledger, *, now: float) -> None:
        before = self._portrait.run
        self._portrait.introduced(notice, start, ledger, now=now)
        alerts, after = self._mind.open_alerts(), self._portrait.run
        ledger.deliveries += self._portrait.handover(now).deliveries(alerts, before=before, after=after)

    def _close_due(self, ledger: Ledger, *, now: float, caught_up: bool) -> None:
        """While more waits to be read, nothing closes for want of patience."""
        due = self._waiting.assembly.due(
            now=now,
            grace_seconds=self._vigil.grace_seconds if caught_up else math.inf,
            watching_since=self._watching_since,
        )
        for batch in due:
            closing = Closing(
                watch=self._portrait.watch(now),
                mind=self._mind,
                batch=batch.decoded(),
                scalars=self._waiting.shelf.of(batch.key.attempt_id, batch.key.step),
                beside=self._taken_beside(batch.key),
            )
            self._close(closing, ledger)
            ledger.tally.close_lags_seconds.append(now - batch.newest_at)

    def _taken_beside(self, key: BatchKey) -> tuple[Quarantined, ...]:
        """The next batch that is folded tells what was set aside before it."""
        if not self._mind.follows(key):
            return ()
        beside, self._beside = tuple(self._beside), []
        return beside

    def _revise(self, late: dict[BatchKey, BatchRow], ledger: Ledger, *, now: float) -> None:
        """A row stays as it is where retention has taken what it was made of: what came late is not all of it.

        Scalars that came with it are read by rules as those in messages of their own are.
        """
        for key, row in late.items():
            batch = seen_again(self._log.batch_reports(key)).decoded()
            if sum(report.n_sequences for report in batch.reports if report.id <= row.last_report_id) < row.n_sequences:
                continue
            closing = Closing(watch=self._portrait.watch(now), mind=self._mind, batch=batch, former=row)
            self._close(closing, ledger)
            # A revised row is not folded again: the next batch tells what was found damaged in it.
            found = set_aside(ledger.rows[key], closing)
            self._beside += [structs.replace(entry, place=f"step {key.step}, {entry.place}") for entry in found]
            read = structs.replace(row, scalars=ledger.rows[key].scalars)
            self._mind = reconsider(read, watch=closing.watch, mind=self._mind)

    def _close(self, closing: Closing, ledger: Ledger) -> None:
        published = judged(closing)
        self._add(published, ledger)
        row = published.row
        if row is not None:
            ledger.tally.quarantined.update(entry.part for entry in set_aside(row, closing))
        if row is not None and closing.former is None:
            ledger.tally.mismatches += row.mismatches
        if row is not None and (published.is_gauge or (self._gauge and self._gauge.key == row.key)):
            self._gauge = row
        if published.is_gauge:
            reports, policy = closing.batch.reports, self._portrait.policies.current.policy
            self._adapt(lambda: self._tuner.take(closing.batch.key, reports, policy=policy), ledger)
            if row is not None:
                self._advisor.heed(row)

    def _adapt(self, act: Callable[[], T], ledger: Ledger) -> T | None:
        counts, run_id = ledger.tally.quarantined, self._portrait.run.id
        return confined(QuarantinePart.ADAPTATION, act, counts=counts, run_id=run_id)

    def _tune(self, ledger: Ledger, *, now: float) -> None:
        """Let the bounds follow the run, unless its trainer asked for a policy in this very pass."""
        portrait = self._portrait
        current, is_stalled = portrait.policies.current, self._life.state is RunState.STALLED
        if "policy" in ledger.run:
            return
        version = self._adapt(
            lambda: self._tuner.tuned(portrait.run, current=current, is_stalled=is_stalled, now=now), ledger
        )
        if version is not None:
            portrait.adopted(version, ledger, at=now)

    def _place_scalars(self, messages: Iterable[Stored], ledger: Ledger, *, now: float) -> None:
        """Scalars of a step whose gauge row is closed revise it; those of a step to come wait."""
        new = [message for message in messages if isinstance(message, StoredNotice)]
        steps = {(n.attempt_id, n.message.step) for n in new if isinstance(n.message, wire.Scalars)}
        for attempt_id, step in sorted(steps):
            self._place(attempt_id, step, ledger, now=now)
        if self._mind.folded is not None:
            self._waiting.forget_scalars(self._mind.folded)

    def _place(self, attempt_id: int, step: int, ledger: Ledger, *, now: float) -> None:
        key = self._mind.gauge_key(attempt_id, step) or BatchKey(attempt_id, step, None)
        if self._mind.follows(key):
            return
        row = ledger.rows.get(key) or self._log.batch(key)
        scalars = self._waiting.shelf.of(attempt_id, step)
        if row is None:
            ledger.tally.unplaced_scalars += 1
        elif scalars.items() - row.scalars.items():
            row = structs.replace(row, scalars={**row.scalars, **scalars})
            mind = reconsider(row, watch=self._portrait.watch(now), mind=self._mind)
            self._add(Published(mind=mind, row=row, events=(batch_event(row, at=now),)), ledger)
            if self._gauge and self._gauge.key == key:
                self._gauge = row

    def _watch_clock(self, ledger: Ledger, *, now: float) -> None:
        self._life, change = watched(
            self._life,
            now=now,
            watching_since=self._watching_since,
            last_seen=partial(self._log.last_seen, self._portrait.run.id),
            expected_step_seconds=self._mind.expected_step_seconds,
            patience=self._vigil.patience,
        )
        self._turn(change, ledger, now=now)

    @property
    def _look_at(self) -> float:
        """Nothing fires on a finished run: who still lives is asked once somebody speaks again."""
        return math.inf if self._life.state is RunState.FINISHED else self._attendance.look_at

    def _look_around(self, ledger: Ledger, *, now: float) -> None:
        if self._attendance.look_at > now:
            return
        found = self._attendance.look(now)
        if self._life.state is RunState.FINISHED:
            found = None
        self._tell(judge_company(found, watch=self._portrait.watch(now), mind=self._mind, now=now), ledger, now=now)

    def _turn(self, change: LifeChange | None, ledger: Ledger, *, now: float) -> None:
        if change is None:
            return
        self._portrait.turned(change, ledger)
        run = self._portrait.run
        key = self._newest or BatchKey(run.attempt_id or 0, run.last_step or 0, None)
        self._tell(judge_change(change, watch=self._portrait.watch(now), mind=self._mind, key=key), ledger, now=now)

    def _tell(self, judged: tuple[tuple[Transition, ...], RunMind], ledger: Ledger, *, now: float) -> None:
        transitions, self._mind = judged
        if transitions:
            self._add(tell(transitions, watch=self._portrait.watch(now), mind=self._mind), ledger)

    def _add(self, published: Published, ledger: Ledger) -> None:
        self._mind = published.mind
        ledger.add(published)

    @property
    def _is_ending(self) -> bool:
        """Whether the run has ended, and that is not yet said of its last step or of alerts that an end resolves.

        Once it is, no later pass says it again: one that did would wake the worker for ever.
        """
        is_finished = self._life.state is RunState.FINISHED
        return self.is_done and bool(self._mind.provisional or (is_finished and self._mind.tracks))

    def _outcome(self, ledger: Ledger, *, now: float, is_ending: bool) -> Outcome | None:
        frontier = self._waiting.settled(self._inbox.read)
        if not ledger and not is_ending and frontier == self._written:
            return None
        made = None
        # A change of state is always in a checkpoint, so that no report from before it is heard again after it, and so
        # is an end, so that the last step is not judged twice.
        changed = is_ending or "state" in ledger.run
        if changed or self._checkpoints.is_due(self._mind, now=now, is_done=self.is_done):
            made = self._checkpoint()
            self._checkpoints.made(self._mind, now=now)
        self._written = frontier
        return ledger.outcome(self._portrait.run.id, frontier=frontier, checkpoint=made)

    def _checkpoint(self) -> Checkpoint:
        recall_from = self._waiting.recall_from(self._inbox.read, newest=self._newest)
        heard_through, silent_since = self._inbox.read.report_id, self._life.silent_since
        return checkpoint(self._mind, recall_from=recall_from, heard_through=heard_through, silent_since=silent_since)
