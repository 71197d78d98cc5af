"""Read the rows that a lake batch moves, table by table, a few hundred at a time."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from typing import Any

import msgspec
import pyarrow as pa
from sqlalchemy import ColumnElement, Connection, Engine, Select, func, select

from trmon.domain.alerts.alert import INCIDENT_RULE, AlertState
from trmon.domain.health.verdict import VerdictInputs, verdict_of
from trmon.domain.incidents.incident import Incident
from trmon.domain.pipeline.publish import judgement_in
from trmon.domain.runs.run import Run
from trmon.store.archive.arrow_tables import sequences_to_arrow
from trmon.store.archive.table_files import PIECE_REPORTS, PIECE_ROWS
from trmon.store.lake import delta_schema
from trmon.store.lake.planning import LakeBatch, LakeMember
from trmon.store.rows.batches import NameDictionary, read_batches
from trmon.store.rows.runs import ALERT_MAPPING, read_run
from trmon.store.schema import tables


def attempt_document(connection: Connection, member: LakeMember, *, now: float) -> dict[str, Any]:
    """Return the columns of an attempt, without the first ones. Args: now: for the verdict, seconds."""
    attempt = tables.attempt
    stored = connection.execute(select(attempt).where(attempt.c.id == member.attempt_id)).one()
    run = read_run(connection, member.run_id)
    table = tables.alert.c
    found = select(tables.alert).where(
        table.run_id == member.run_id, table.attempt_id == member.attempt_id, table.rule == INCIDENT_RULE
    )
    row = connection.execute(found.order_by(table.id.desc()).limit(1)).one_or_none()
    incident = None if row is None else Incident(alert=ALERT_MAPPING.from_row(row))
    batch = tables.batch.c
    sizes = select(
        func.min(batch.step).label("first_step"),
        func.max(batch.step).label("newest_step"),
        func.count().label("n_batches"),
        func.sum(batch.n_sequences).label("n_sequences"),
        func.sum(batch.n_tokens).label("n_tokens"),
        func.max(batch.closed_at).label("ended_at"),
    ).where(batch.attempt_id == member.attempt_id)
    return {
        **stored._asdict(),
        "state": run.state.value,
        "mode": run.mode,
        "owner": run.owner,
        "config": msgspec.json.encode(run.config).decode(),
        "ending": None if run.ending is None else msgspec.json.encode(run.ending).decode(),
        "tags": list(run.tags),
        "created_at": run.created_at,
        "verdict": _verdict(connection, run, incident, now=now) if run.attempt_id == member.attempt_id else None,
        "cause": None if incident is None else incident.cause,
        "ill_step": None if incident is None else incident.since_step,
        **connection.execute(sizes).one()._mapping,
    }


def _verdict(connection: Connection, run: Run, incident: Incident | None, *, now: float) -> str:
    alert, run_state = tables.alert.c, tables.run_state.c
    firing = select(tables.alert).where(alert.run_id == run.id, alert.state == AlertState.FIRING.value)
    outlook = connection.execute(select(run_state.outlook).where(run_state.run_id == run.id)).scalar_one_or_none()
    inputs = VerdictInputs(
        run=run,
        alerts=list(map(ALERT_MAPPING.from_row, connection.execute(firing.order_by(alert.id)))),
        incident=incident,
        judgement=judgement_in(outlook or {}),
    )
    return verdict_of(inputs, now=now).kind.value


_TIMES = {tables.policy_version: "created_at", tables.adaptation: "changed_at", tables.note: "at"}
"""When a row was written that belongs to a run and to no attempt."""
_MESSAGES = {
    tables.report: ("after_report_id", "report_id"),
    tables.notice: ("after_notice_id", "notice_id"),
}


class AttemptRows:
    """The rows of the attempts of a lake batch, in the order of project, run, attempt and the table's own."""

    def __init__(self, reader: Engine, names: NameDictionary) -> None:
        self._reader = reader
        self._names = names

    def read(self, batch: LakeBatch, table: delta_schema.LakeTable) -> Iterator[Any]:
        """Yield the rows of a table as record batches; none is empty."""
        with self._reader.connect() as connection:
            yield from self.read_from(connection, batch, table)

    def read_from(self, connection: Connection, batch: LakeBatch, table: delta_schema.LakeTable) -> Iterator[Any]:
        """Yield the rows of a table as `read` does, of the snapshot of a connection."""
        for member in batch.members:
            if member.is_late and table not in delta_schema.LATE_TABLES:
                continue
            with closing(self._pieces(connection, member, table, now=batch.planned_at)) as pieces:
                for piece in pieces:
                    if piece.num_rows:
                        front = batch.front(member)
                        constants = [
                            pa.repeat(pa.scalar(front[one.name], one.type), piece.num_rows)
                            for one in delta_schema.FRONT
                        ]
                        columns = [*constants, *(piece.column(field.name) for field in table.fields)]
                        yield pa.RecordBatch.from_arrays(columns, schema=table.schema)

    def _pieces(
        self, connection: Connection, member: LakeMember, table: delta_schema.LakeTable, *, now: float
    ) -> Generator[Any, None, None]:
        if table is delta_schema.LAKE_ATTEMPTS:
            schema, row = pa.schema(table.fields), attempt_document(connection, member, now=now)
            yield pa.RecordBatch.from_pylist([{name: row[name] for name in schema.names}], schema=schema)
        elif table is delta_schema.LAKE_BATCHES:
            yield from self._batches(connection, member)
        elif table is delta_schema.LAKE_SEQUENCES:
            for rows in _partitions(connection, rows_of(member, delta_schema.LAKE_REPORTS), n_rows=PIECE_REPORTS):
                yield sequences_to_arrow(rows)
        else:
            n_rows = PIECE_REPORTS if table is delta_schema.LAKE_REPORTS else PIECE_ROWS
            assert table.archived is not None
            for rows in _partitions(connection, rows_of(member, table), n_rows=n_rows):
                yield table.archived.to_arrow([row._asdict() for row in rows])

    def _batches(self, connection: Connection, member: LakeMember) -> Iterator[Any]:
        table = tables.batch.c
        newer = select(tables.batch).where(table.attempt_id == member.attempt_id)
        newer = newer.order_by(table.step, table.update_index).limit(PIECE_ROWS)
        found = newer
        while rows := read_batches(connection, found, names=self._names):
            yield delta_schema.batches_to_lake(rows)
            last = rows[-1].key
            is_after = (table.step == last.step) & (table.update_index > last.update)
            found = newer.where((table.step > last.step) | is_after)


def rows_of(member: LakeMember, table: delta_schema.LakeTable) -> Select[Any]:
    """Return the query for the rows of a member in a table whose rows are stored unchanged."""
    assert table.archived is not None
    source = table.archived.table
    found = select(*table.archived.columns).order_by(*(source.c[name] for name in table.order))
    if source in _TIMES:
        at = source.c[_TIMES[source]]
        return found.where(source.c.run_id == member.run_id, at >= member.since, at < member.until)
    return found.where(belongs_to(member, table))


def belongs_to(member: LakeMember, table: delta_schema.LakeTable) -> ColumnElement[bool]:
    """Return the predicate for the rows of a member in a table that names attempts."""
    assert table.archived is not None
    source = table.archived.table
    predicate = source.c.attempt_id == member.attempt_id
    if source in _MESSAGES:
        after, last = (getattr(member, name) for name in _MESSAGES[source])
        predicate &= (source.c.id > after) & (source.c.id <= last)
    return predicate


def _partitions(connection: Connection, query: Select[Any], *, n_rows: int) -> Iterator[Sequence[Any]]:
    result = connection.execute(query.execution_options(yield_per=n_rows))
    try:
        yield from result.partitions()
    finally:
        result.close()
