"""A run log in memory, the simplest implementation of the port."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from threading import Lock

from tests.domain import trainer
from trmon.domain.adaptation.proposal import AdaptationSetting
from trmon.domain.alerts.alert import INCIDENT_RULE, Alert, AlertEvent, AlertState
from trmon.domain.alerts.delivery import Delivery
from trmon.domain.batches.batch import BatchRow, DecisionRow
from trmon.domain.errors import NotFound
from trmon.domain.identity import BatchKey, RunKey
from trmon.domain.messages import NewestMessage, StoredNotice, StoredReport, Unread
from trmon.domain.ownership import Fences
from trmon.domain.pipeline.publish import Checkpoint, Event, Frontier, RunProgress, RunUpdate
from trmon.domain.policies import PolicyVersion, default_version
from trmon.domain.runs.attempts import ActiveLaunch, Claim, renewed_claim
from trmon.domain.runs.run import Attempt, Run, RunState
from trmon_client.core import wire

RUN_ID = 1
OPEN = (AlertState.PENDING, AlertState.FIRING)


class MemoryLog:
    """One run's log, by the methods of RunLog; `broken` makes every read fail until it is unset."""

    def __init__(self, *, created_at: float = 0.0) -> None:
        self._lock = Lock()
        self.broken = False
        key = RunKey("math", "grpo")
        self.stored_run = Run(id=RUN_ID, key=key, state=RunState.RUNNING, created_at=created_at)
        self.stored_reports: list[StoredReport] = []
        self.notices: list[StoredNotice] = []
        self.rows: dict[BatchKey, BatchRow] = {}
        self.decisions: dict[tuple[BatchKey, str], DecisionRow] = {}
        self.alerts: dict[tuple[str, int, int, int | None], Alert] = {}
        self.alert_events: dict[tuple[object, ...], AlertEvent] = {}
        self.deliveries: dict[str, Delivery] = {}
        self.events: list[Event] = []
        self.versions: list[PolicyVersion] = []
        self.setting = AdaptationSetting()
        self.commits: list[RunUpdate] = []
        self._frontier = Frontier()
        self._checkpoint: Checkpoint | None = None
        self._seen_at: float | None = None
        self._attempts: list[str] = []
        self.looks_at_speakers = 0
        self._claims: dict[tuple[int, int], Claim] = {}
        self._looks = 0
        self.runs = self.reports = self.policies = self.adaptations = self

    def receive(self, *messages: wire.Message, at: float) -> None:
        """Store messages as the service does; a heartbeat only updates the time last seen."""
        with self._lock:
            self._seen_at = at
            for message in messages:
                self._receive(message, at)

    def _receive(self, message: wire.Message, at: float) -> None:
        if message.attempt not in self._attempts:
            self._attempts.append(message.attempt)
        attempt_id = self._attempts.index(message.attempt) + 1
        claimed = (attempt_id, message.rank)
        self._claims[claimed] = renewed_claim(self._claims.get(claimed), message, now=at)
        if isinstance(message, wire.Report | wire.Scalars):
            self.stored_run = replace(self.stored_run, last_report_at=at)
        if isinstance(message, wire.Report):
            self.stored_reports.append(
                trainer.stored(message, id_=len(self.stored_reports) + 1, at=at, attempt_id=attempt_id)
            )
        elif not isinstance(message, wire.Heartbeat):
            place = {"id": len(self.notices) + 1, "run_id": RUN_ID, "attempt_id": attempt_id}
            self.notices.append(StoredNotice(**place, received_at=at, message=message))

    def unfinished_runs(self, slots: Collection[int] | None = None) -> list[Run]:
        self._check()
        beyond = self._frontier.report_id < len(self.stored_reports) or self._frontier.notice_id < len(self.notices)
        return [self.stored_run] if beyond or not self.stored_run.state.ended else []

    def by_id(self, run_id: int) -> Run:
        self._check()
        if run_id != RUN_ID:
            raise NotFound("run", str(run_id))
        return self.stored_run

    def revision(self, run_id: int) -> int:
        """See RunLog; changes at each call, since tests edit stored values directly."""
        self._looks += 1
        return self._looks

    def attempts(self, run_id: int) -> list[Attempt]:
        return [
            Attempt(id=i + 1, run_id=run_id, name=name, ordinal=i + 1, started_at=0.0, world_size=1)
            for i, name in enumerate(self._attempts)
        ]

    def progress(self, run_id: int) -> RunProgress:
        return RunProgress(frontier=self._frontier, checkpoint=self._checkpoint)

    def unread_of(self, run_id: int, read: Frontier, *, limit: int) -> Unread:
        self._check()
        with self._lock:
            return Unread(
                notices=[*self.notices[read.notice_id : read.notice_id + limit]],
                reports=[*self.stored_reports[read.report_id : read.report_id + limit]],
            )

    def newest(self, run_ids: Sequence[int]) -> dict[int, NewestMessage]:
        self._check()
        measured = [notice.message for notice in self.notices if isinstance(notice.message, wire.Scalars)]
        sent = [message.sent_at for message in (*measured, *(stored.report for stored in self.stored_reports))]
        return {RUN_ID: NewestMessage(sent_at=max(sent, default=None), is_unread=True)}

    def notices_after(self, run_id: int, notice_id: int, *, limit: int) -> list[StoredNotice]:
        with self._lock:
            return self.notices[notice_id : notice_id + limit]

    def unread(self, read: Mapping[int, Frontier], *, limit: int) -> dict[int, Unread] | None:
        found = {run_id: self.unread_of(run_id, frontier, limit=limit) for run_id, frontier in read.items()}
        is_much = any(len(mail.notices) >= limit or len(mail.reports) >= limit for mail in found.values())
        return None if is_much else found

    def of_batch(self, key: BatchKey) -> list[StoredReport]:
        found = [report for report in self.stored_reports if report.key.batch == key]
        return sorted(found, key=lambda report: (report.key.rank, report.key.chunk))

    def batch(self, key: BatchKey) -> BatchRow | None:
        return self.rows.get(key)

    def batches_after(self, run_id: int, ordinal: int, *, limit: int, with_moved: bool = True) -> list[BatchRow]:
        found = sorted((row for row in self.rows.values() if row.ordinal > ordinal), key=lambda row: row.ordinal)
        return found[:limit]

    def forget_checkpoint(self) -> None:
        """Delete the checkpoint, as another STATE_VERSION does."""
        self._checkpoint = None

    def open_alerts(self, run_id: int) -> list[Alert]:
        return [alert for alert in self.alerts.values() if alert.state in OPEN]

    def current(self, run_id: int) -> PolicyVersion:
        return self.versions[-1] if self.versions else default_version(now=self.stored_run.created_at)

    def history(self, run_id: int) -> list[PolicyVersion]:
        return list(self.versions)

    def get(self, run_id: int) -> AdaptationSetting:
        return self.setting

    def last_seen(self, run_id: int) -> float | None:
        return self._seen_at

    def active_launches(self, run_id: int, *, since: float) -> list[ActiveLaunch]:
        self.looks_at_speakers += 1
        return [
            ActiveLaunch(
                attempt_id=attempt_id,
                attempt=self._attempts[attempt_id - 1],
                rank=rank,
                launch=claim.launch,
                began_at=claim.began_at,
                beat_at=claim.beat_at,
                last_step=claim.last_step,
                ended=claim.ended,
            )
            for (attempt_id, rank), claim in self._claims.items()
            if claim.began_at is not None and (claim.beat_at or claim.began_at) > since
        ]

    def commit(self, outcomes: Sequence[RunUpdate], *, fences: Fences | None = None) -> list[Future[None]]:
        return [self._committed(outcome) for outcome in outcomes]

    def _committed(self, outcome: RunUpdate) -> Future[None]:
        done: Future[None] = Future()
        if self.broken:
            done.set_exception(OSError("disk full"))
            return done
        with self._lock:
            self._write(outcome)
        done.set_result(None)
        return done

    def told(self) -> list[tuple[str, str, int]]:
        """Return the events of rules' alerts as (rule, state, step), in the order in which they were written."""
        return [event for event in self._events() if event[0] != INCIDENT_RULE]

    def incidents(self) -> list[tuple[str, int]]:
        """Return the events of incidents as (state, step), in the order in which they were written."""
        return [(state, step) for rule, state, step in self._events() if rule == INCIDENT_RULE]

    def _events(self) -> list[tuple[str, str, int]]:
        rules = {alert.identity: alert.rule for alert in self.alerts.values()}
        return [(rules[event.identity], event.state.value, event.step) for event in self.alert_events.values()]

    def _check(self) -> None:
        if self.broken:
            raise OSError("disk gone")

    def _write(self, outcome: RunUpdate) -> None:
        self.commits.append(outcome)
        ordinals = {row.ordinal: row.key for row in self.rows.values()}
        for row in outcome.batches:
            assert ordinals.get(row.ordinal, row.key) == row.key, "an ordinal belongs to one batch"
            self.rows[row.key] = row
        self.decisions |= {(decision.key, decision.policy_hash): decision for decision in outcome.decisions}
        for alert in outcome.alerts:
            self.alerts[alert.identity, alert.attempt_id, alert.step, alert.update] = alert
        self.alerts = {place: alert for place, alert in self.alerts.items() if alert.state is not AlertState.DROPPED}
        for event in outcome.alert_events:
            place = (event.attempt_id, event.step, event.update, event.silence_started_at)
            self.alert_events.setdefault((event.identity, *place, event.state), event)
        for delivery in outcome.deliveries:
            self.deliveries.setdefault(delivery.dedup_key, delivery)
        self.events += outcome.events
        self.versions += [outcome.policy] if outcome.policy else []
        self._frontier = outcome.frontier
        self._checkpoint = outcome.checkpoint or self._checkpoint
        fields = ("state", "last_step", "attempt_id", "owner", "tags", "mode", "config", "ending", "warnings")
        changed = {name: getattr(outcome, name) for name in fields if getattr(outcome, name)}
        self.stored_run = replace(self.stored_run, **changed)
