"""What is stored of the alerts of the newest days, for the alarm budget."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection

from sqlalchemy import exists, func, or_, select

from trmon.domain.access import Access
from trmon.domain.alerts.alert import INCIDENT_RULE, AlertState
from trmon.domain.findings.verdict import COLLAPSE
from trmon.domain.incidents.alarm_budget import BudgetRecord
from trmon.domain.runs.run import RunState
from trmon.domain.severity import Severity
from trmon.store.repositories.alerts import listed_alert, select_listed
from trmon.store.repositories.silences import read_recent_silences
from trmon.store.rows.runs import ALERT_MAPPING, read_runs, select_runs, visible_runs
from trmon.store.schema import tables
from trmon.store.writing.repository import Reader

_ALERT, _EVENT, _RUN, _CLAIM, _ATTEMPT = (
    table.c for table in (tables.alert, tables.alert_event, tables.run, tables.claim, tables.attempt)
)


class BudgetRecords(Reader):
    """Reads what an alarm budget is computed from; the number of its queries does not grow with the runs."""

    def read(self, *, access: Access, health_rules: Collection[str], since: float) -> BudgetRecord:
        """Return what is stored from a time on, as one snapshot.

        Args: health_rules: the rules whose alerts are told as the incident that they join, so not themselves.
        """
        is_recent = or_(_ALERT.state == AlertState.FIRING.value, _ALERT.updated_at >= since)
        fired = (_ALERT.state != AlertState.PENDING.value) & is_recent
        is_sent = or_(_ALERT.rule == INCIDENT_RULE, _ALERT.rule.not_in(health_rules))
        sent = select_listed(access).where(fired, is_sent, _ALERT.severity != Severity.INFO.value).order_by(_ALERT.id)
        collapses = select(tables.alert).join(tables.run).where(fired, _ALERT.rule == COLLAPSE, visible_runs(access))
        events = (
            select(_EVENT.identity, _EVENT.at)
            .join(tables.run)
            .where(_EVENT.state == AlertState.FIRING.value, _EVENT.at >= since, visible_runs(access))
            .order_by(_EVENT.at)
        )
        is_ended = or_(_RUN.state.in_((RunState.CRASHED.value, RunState.STALLED.value)), _RUN.ending.is_not(None))
        alerted = select(_ALERT.run_id).where(fired)
        ended = select_runs(access).where(is_ended, _RUN.id.in_(alerted))
        start = func.coalesce(func.min(_CLAIM.began_at), _ATTEMPT.started_at)
        newest = func.max(_CLAIM.seen_at)
        trained = (
            select(start, newest)
            .join_from(tables.attempt, tables.claim)
            .join(tables.run, _RUN.id == _ATTEMPT.run_id)
            .where(visible_runs(access))
            .group_by(_ATTEMPT.id, _ATTEMPT.started_at)
            .having(newest >= since)
        )
        with self._reader.connect() as connection:
            fired_at: defaultdict[str, list[float]] = defaultdict(list)
            for identity, at in connection.execute(events):
                fired_at[identity].append(at)
            return BudgetRecord(
                alerts=tuple(map(listed_alert, connection.execute(sent))),
                collapses=tuple(map(ALERT_MAPPING.from_row, connection.execute(collapses))),
                fired_at=fired_at,
                silences=read_recent_silences(connection, since=since),
                runs=tuple(read_runs(connection, ended)),
                trained=tuple((row[0], row[1]) for row in connection.execute(trained)),
            )

    def recent_run_ids(self, *, access: Access, since: float, before: int | None = None) -> list[int]:
        """Return the ids of the runs that are not archived and were heard of since a time, newest first.

        Args: before: only those of smaller ids, to continue after the last one of an earlier call.
        """
        heard = exists().where(_CLAIM.run_id == _RUN.id, _CLAIM.seen_at >= since)
        found = select(_RUN.id).where(visible_runs(access), ~_RUN.archived, heard)
        found = found if before is None else found.where(_RUN.id < before)
        return list(self._values(found.order_by(_RUN.id.desc())))
