"""The row of a moved attempt: its run, its size, how it ended and what was wrong with it."""

from __future__ import annotations

from typing import Any

import msgspec
from sqlalchemy import Connection, func, select

from trmon.domain.alerts.alert import INCIDENT_RULE, AlertState
from trmon.domain.health.verdict import VerdictInputs, judge_run
from trmon.domain.incidents.incident import Incident
from trmon.domain.runs.run import Run
from trmon.store.lake.lake_member import LakeMember
from trmon.store.rows.alert_rows import alert_from_row
from trmon.store.rows.run_rows import read_run
from trmon.store.rows.summary_rows import SUMMARY_VERSION, summary_from_row
from trmon.store.schema import tables


def attempt_document(connection: Connection, member: LakeMember, *, now: float) -> dict[str, Any]:
    """Return the columns of an attempt, without the first ones. Args: now: for the verdict, seconds."""
    attempt = tables.attempt
    stored = connection.execute(select(attempt).where(attempt.c.id == member.attempt_id)).one()
    run = read_run(connection, tables.run.c.id == member.run_id, name=member.run)
    incident = _newest_incident(connection, member)
    return {
        **stored._asdict(),
        **_run_columns(run),
        "verdict": _verdict(connection, run, incident, now=now) if run.attempt_id == member.attempt_id else None,
        "cause": None if incident is None else incident.cause,
        "finding": None if incident is None or incident.finding is None else incident.finding.value,
        "ill_step": None if incident is None else incident.alert.step,
        **_sizes(connection, member),
    }


def _run_columns(run: Run) -> dict[str, Any]:
    return {
        "state": run.state.value,
        "mode": run.mode,
        "owner": run.owner,
        "config": msgspec.json.encode(run.config).decode(),
        "ending": None if run.ending is None else msgspec.json.encode(run.ending).decode(),
        "tags": list(run.tags),
        "created_at": run.created_at,
    }


def _newest_incident(connection: Connection, member: LakeMember) -> Incident | None:
    table = tables.alert.c
    found = select(tables.alert).where(
        table.run_id == member.run_id, table.attempt_id == member.attempt_id, table.rule == INCIDENT_RULE
    )
    row = connection.execute(found.order_by(table.id.desc()).limit(1)).one_or_none()
    return None if row is None else Incident(alert=alert_from_row(row))


def _verdict(connection: Connection, run: Run, incident: Incident | None, *, now: float) -> str:
    alert, summary = tables.alert.c, tables.run_summary
    firing = select(tables.alert).where(alert.run_id == run.id, alert.state == AlertState.FIRING.value)
    stored = connection.execute(
        select(summary).where(summary.c.run_id == run.id, summary.c.version == SUMMARY_VERSION)
    ).one_or_none()
    found = None if stored is None else summary_from_row(stored)
    inputs = VerdictInputs(
        run=run,
        alerts=[alert_from_row(row) for row in connection.execute(firing.order_by(alert.id))],
        incident=incident,
        diagnosis=None if found is None else found.diagnosis,
    )
    return judge_run(inputs, now=now).kind.value


def _sizes(connection: Connection, member: LakeMember) -> dict[str, Any]:
    table = tables.batch.c
    totals = select(
        func.min(table.step).label("first_step"),
        func.max(table.step).label("newest_step"),
        func.count().label("n_batches"),
        func.sum(table.n_sequences).label("n_sequences"),
        func.sum(table.n_tokens).label("n_tokens"),
        func.max(table.closed_at).label("ended_at"),
    ).where(table.attempt_id == member.attempt_id)
    return dict(connection.execute(totals).one()._mapping)
