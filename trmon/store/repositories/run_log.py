"""The durable log of runs, as a worker reads and extends it; implements RunLog and Outcomes of trmon.domain.ports."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

from sqlalchemy import Engine, exists, func, or_, select

from trmon.domain.adaptation.adaptation_setting import AdaptationSetting
from trmon.domain.alerts.alert import Alert, AlertState
from trmon.domain.batches.batch import BatchRow
from trmon.domain.model.access import EVERYTHING
from trmon.domain.model.errors import Fenced
from trmon.domain.model.identity import BatchKey
from trmon.domain.model.messages import AnyNotice, AnyReport, Unread
from trmon.domain.model.slots import SLOTS, Fences, slot_of
from trmon.domain.policies.policy_version import PolicyVersion
from trmon.domain.runs.duplicate_trainers import ActiveLaunch
from trmon.domain.runs.run import Attempt, Run, RunState
from trmon.domain.state.run_update import Checkpoint, Frontier, RunProgress, RunUpdate
from trmon.store.registry.run_registry import RunRegistry
from trmon.store.repositories.adaptations import Adaptations
from trmon.store.repositories.leases import check_fences
from trmon.store.repositories.policies import Policies
from trmon.store.repositories.reports import Reports
from trmon.store.repositories.run_updates import write_run_updates
from trmon.store.repositories.runs import Runs
from trmon.store.repositories.unread_messages import read_unread_messages
from trmon.store.rows.alert_rows import alert_from_row
from trmon.store.rows.batch_rows import is_batch, read_batches
from trmon.store.rows.name_dictionary import NameDictionary
from trmon.store.rows.run_rows import read_runs, select_runs
from trmon.store.schema import tables
from trmon.store.writing.group_commit import CommittedGroup, GroupCommit
from trmon.store.writing.transaction import Transaction

_ENDED = [state.value for state in RunState if state.ended]
_OPEN = [AlertState.PENDING.value, AlertState.FIRING.value]


class SqlRunLog:
    """The port's methods over the tables; see trmon.domain.ports.RunLog for what each means."""

    def __init__(
        self,
        reader: Engine,
        writer: GroupCommit,
        *,
        directory: RunRegistry,
        names: NameDictionary,
        runs: Runs,
        reports: Reports,
        policies: Policies,
        adaptations: Adaptations,
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._directory = directory
        self._names = names
        self._runs = runs
        self._reports = reports
        self._policies = policies
        self._adaptations = adaptations
        self._revisions: Counter[int] = Counter()
        writer.on_commit(self._note)

    def unfinished_runs(self, slots: Collection[int] | None = None) -> list[Run]:
        """Return the runs, of some slots or all, that have not ended or have reports beyond their frontier."""
        state, run, report, notice = tables.run_state.c, tables.run.c, tables.report.c, tables.notice.c
        beyond = or_(
            exists().where(report.run_id == run.id, report.id > func.coalesce(state.report_id, 0)),
            exists().where(notice.run_id == run.id, notice.id > func.coalesce(state.notice_id, 0)),
        )
        found = select_runs(EVERYTHING).outerjoin(tables.run_state).where(or_(run.state.not_in(_ENDED), beyond))
        if slots is not None:
            found = found.where((run.id % SLOTS).in_(slots))
        with self._reader.connect() as connection:
            return read_runs(connection, found.order_by(run.id))

    def run(self, run_id: int) -> Run:
        """Return a run. Errors: NotFound."""
        return self._runs.by_id(run_id)

    def revision(self, run_id: int) -> int:
        """Return how often somebody beside the run's worker has changed it, as far as this process has heard."""
        return self._revisions[run_id]

    def attempts(self, run_id: int) -> list[Attempt]:
        """Return a run's attempts, oldest first."""
        return self._runs.attempts(run_id)

    def progress(self, run_id: int) -> RunProgress:
        """Return how far the run was folded, zeros for a new one, and the newest checkpoint of its state."""
        found = select(tables.run_state).where(tables.run_state.c.run_id == run_id)
        with self._reader.connect() as connection:
            row = connection.execute(found).one_or_none()
        return RunProgress() if row is None else _reached(row)

    def reports_after(self, run_id: int, report_id: int, *, limit: int) -> list[AnyReport]:
        """Return the run's reports with a larger id, oldest first."""
        return self._reports.after(run_id, report_id, limit=limit)

    def notices_after(self, run_id: int, notice_id: int, *, limit: int) -> list[AnyNotice]:
        """Return the run's notices with a larger id, oldest first."""
        return self._reports.notices_after(run_id, notice_id, limit=limit)

    def unread(self, read: Mapping[int, Frontier], *, limit: int) -> dict[int, Unread] | None:
        """Return what came of each of some runs since it was read; None if it is as much as `limit` of either kind."""
        with self._reader.connect() as connection:
            return read_unread_messages(connection, read, limit=limit)

    def batch_reports(self, key: BatchKey) -> list[AnyReport]:
        """Return the stored reports of one batch in the order (rank, chunk)."""
        return self._reports.of_batch(key)

    def batch(self, key: BatchKey) -> BatchRow | None:
        """Return a closed batch, or None."""
        found = select(tables.batch).where(*is_batch(tables.batch, key))
        with self._reader.connect() as connection:
            return next(iter(read_batches(connection, found, names=self._names)), None)

    def batches_after(self, run_id: int, ordinal: int, *, limit: int) -> list[BatchRow]:
        """Return the run's closed batches folded after an ordinal, in that order."""
        table = tables.batch.c
        newer = select(tables.batch).where(table.run_id == run_id, table.ordinal > ordinal)
        with self._reader.connect() as connection:
            return read_batches(connection, newer.order_by(table.ordinal).limit(limit), names=self._names)

    def open_alerts(self, run_id: int) -> list[Alert]:
        """Return the run's pending and firing alerts."""
        table = tables.alert.c
        found = select(tables.alert).where(table.run_id == run_id, table.state.in_(_OPEN))
        with self._reader.connect() as connection:
            return [alert_from_row(row) for row in connection.execute(found.order_by(table.id))]

    def policy(self, run_id: int) -> PolicyVersion:
        """Return the run's current policy version, the default one if none was ever set."""
        return self._policies.current(run_id)

    def policy_versions(self, run_id: int) -> list[PolicyVersion]:
        """Return every policy version the run had, oldest first."""
        return self._policies.history(run_id)

    def adaptation(self, run_id: int) -> AdaptationSetting:
        """Return how the run's bounds are adapted."""
        return self._adaptations.get(run_id)

    def last_seen(self, run_id: int) -> float | None:
        """Return when the run's newest message of any kind came, heartbeats included."""
        seen = self._directory.last_seen.get(run_id)
        if seen is not None:
            return seen
        newest = select(func.max(tables.claim.c.seen_at)).where(tables.claim.c.run_id == run_id)
        with self._reader.connect() as connection:
            found: float | None = connection.scalar(newest)
        return found

    def active_launches(self, run_id: int, *, since: float) -> list[ActiveLaunch]:
        """Return, by rank, the launches of a run whose hearts have beaten since a time, or that began since."""
        claim, attempt = tables.claim.c, tables.attempt
        known = (claim.run_id == run_id) & (func.coalesce(claim.beat_at, claim.began_at) > since)
        found = (
            select(tables.claim, attempt.c.name.label("attempt"))
            .join_from(tables.claim, attempt)
            .where(known, claim.began_at.is_not(None))
        )
        with self._reader.connect() as connection:
            return [_speaker(row) for row in connection.execute(found)]

    def commit(self, outcomes: Sequence[RunUpdate], *, fences: Fences | None = None) -> list[Future[None]]:
        """Write outcomes, each in one transaction; each future ends when its one is on disk. Errors, from it: Fenced.

        Args: fences: those under which the runs' slots are held; None where there is one worker only.
        """
        run_ids = [outcome.run_id for outcome in outcomes]
        items = [(outcome, None if fences is None else fences[slot_of(outcome.run_id)]) for outcome in outcomes]
        return self._writer.submit_each(self._write, items, runs=run_ids)

    def edited(self, run_ids: Collection[int]) -> None:
        """Note that somebody in another process has changed runs."""
        self._revisions.update(run_ids)

    def revised(self, revisions: Mapping[int, int]) -> None:
        """Take over what another process counts as the revisions of runs."""
        for run_id, revision in revisions.items():
            self._revisions[run_id] = revision

    def _write(self, transaction: Transaction, items: Sequence[tuple[RunUpdate, int | None]]) -> list[None]:
        check_fences(transaction.connection, _common_fences(items))
        write_run_updates(transaction, [outcome for outcome, _ in items], names=self._names)
        return [None] * len(items)

    def _note(self, commit: CommittedGroup) -> None:
        self._revisions.update(commit.edited)


def _common_fences(items: Sequence[tuple[RunUpdate, int | None]]) -> dict[int, int]:
    """Return the fence of each slot. Errors: Fenced where a slot was lost and taken again between two outcomes."""
    fences: dict[int, int] = {}
    for outcome, fence in items:
        slot = slot_of(outcome.run_id)
        if fence is not None and fences.setdefault(slot, fence) != fence:
            raise Fenced(f"slot {slot} was lost before it was taken again")
    return fences


def _reached(row: Any) -> RunProgress:
    frontier = Frontier(report_id=row.report_id, notice_id=row.notice_id)
    if row.state is None:
        return RunProgress(frontier=frontier)
    checkpoint = Checkpoint(ordinal=row.ordinal, version=row.version, state=row.state)
    return RunProgress(frontier=frontier, checkpoint=checkpoint)


def _speaker(row: Any) -> ActiveLaunch:
    return ActiveLaunch(
        attempt_id=row.attempt_id,
        attempt=row.attempt,
        rank=row.rank,
        launch=row.launch,
        began_at=row.began_at,
        beat_at=row.beat_at,
        last_step=row.last_step,
        ended=row.ended,
    )
