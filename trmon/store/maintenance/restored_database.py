"""Prepare a database that was restored to an earlier time: what it gave out since then is not given out again."""

from __future__ import annotations

import time
from dataclasses import dataclass

from sqlalchemy import BigInteger, Connection, Engine, bindparam, delete, func, insert, select, text, update

from trmon.domain.model.access import Access, AuditAction
from trmon.domain.model.errors import Conflict
from trmon.domain.runs.run import RunState
from trmon.store import migrations
from trmon.store.database.connect import engines_of
from trmon.store.maintenance.exclusive_lock import exclusive_use
from trmon.store.repositories.audit import write_audit
from trmon.store.schema import tables

SKIPPED_IDS = 1 << 32
"""More ids and fences than a database gives out between two backups: at 1,000 a second, in 49 days."""
_TRIES, _WAIT_SECONDS = 20, 0.1
_OTHERS = """
SELECT count(*) FROM pg_stat_activity
WHERE datname = current_database() AND application_name = 'trmon' AND pid <> pg_backend_pid()
"""
_SEQUENCES = """
SELECT setval(format('%I.%I', schemaname, sequencename)::regclass, coalesce(last_value, 0) + :skipped)
FROM pg_sequences WHERE schemaname = current_schema()
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoredState:
    """What a restored database holds: when its newest report was received, None without one, and its open runs."""

    newest_report_at: float | None
    open_runs: int


def prepare_restored(url: str, *, access: Access, now: float) -> RestoredState:
    """Migrate a restored database, skip the ids that it may have given out since, and tell its open runs.

    Workers that still run lose their leases. Repeating it skips further ids and changes nothing else.
    Errors: Conflict while other processes use the database; NotReady for the schema of a newer trmon.
    """
    engines = engines_of(url)
    try:
        with exclusive_use(url):
            if engines.is_shared:
                _check_alone(engines.writing)
            migrations.upgrade_schema(engines.writing)
            with engines.writing.begin() as connection:
                return _prepare(connection, access=access, now=now)
    finally:
        engines.dispose()


def _check_alone(engine: Engine) -> None:
    """Raise Conflict if others use the database; PostgreSQL shows a closed connection for a moment longer."""
    for _ in range(_TRIES):
        with engine.connect() as connection:
            if not connection.scalar(text(_OTHERS)):
                return
        time.sleep(_WAIT_SECONDS)
    raise Conflict("other processes of trmon use the database; stop them all, and run this again")


def _prepare(connection: Connection, *, access: Access, now: float) -> RestoredState:
    if connection.dialect.name == "postgresql":
        connection.execute(text(_SEQUENCES).bindparams(bindparam("skipped", SKIPPED_IDS, BigInteger)))
    else:
        _skip_sqlite_ids(connection)
    lease = tables.lease.c
    connection.execute(update(tables.lease).values(fence=lease.fence + SKIPPED_IDS, holder=None, expires_at=0.0))
    connection.execute(delete(tables.worker))
    state = RestoredState(
        newest_report_at=connection.scalar(select(func.max(tables.report.c.received_at))),
        open_runs=_note_loss(connection, author=access.name, now=now),
    )
    write_audit(
        connection,
        access,
        AuditAction.DATABASE_RESTORE,
        at=now,
        target=str(connection.engine.url.database),
        project=None,
        after={"newest_report_at": state.newest_report_at},
    )
    return state


def _skip_sqlite_ids(connection: Connection) -> None:
    for table in tables.metadata.sorted_tables:
        if table.dialect_options["sqlite"]["autoincrement"]:
            given = {"name": table.name, "skipped": SKIPPED_IDS}
            moved = text("UPDATE sqlite_sequence SET seq = seq + :skipped WHERE name = :name")
            if not connection.execute(moved, given).rowcount:
                connection.execute(text("INSERT INTO sqlite_sequence (name, seq) VALUES (:name, :skipped)"), given)


def _note_loss(connection: Connection, *, author: str, now: float) -> int:
    """Add a note to each run that had not ended, at its newest closed step, and return their number."""
    run = tables.run.c
    ended = [state.value for state in RunState if state.ended]
    batch = tables.batch.c
    newest = select(batch.step).where(batch.run_id == run.id).order_by(batch.ordinal.desc()).limit(1)
    open_runs = select(run.id, newest.scalar_subquery().label("last_step")).where(run.state.not_in(ended))
    rows = connection.execute(open_runs).all()
    message = (
        "The database was restored to an earlier time. Reports that were acknowledged after that time are lost, unless "
        "their trainer sends them again."
    )
    notes = [{"run_id": row.id, "step": row.last_step, "author": author, "text": message, "at": now} for row in rows]
    if notes:
        connection.execute(insert(tables.note), notes)
    return len(notes)
