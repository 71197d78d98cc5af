"""Checksums of what a database stores of runs, and of what a lake holds, table by table, to compare them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError
from sqlalchemy import select

from trmon.domain.access import EVERYTHING
from trmon.store import Store
from trmon.store.archive.arrow_tables import SEQUENCES_SCHEMA, sequences_to_arrow
from trmon.store.lake.delta_schema import LAKE_BATCHES, LAKE_SEQUENCES, LAKE_TABLES, batch_from_lake
from trmon.store.schema import tables

Rows = dict[str, list[str]]
"""The rows of each table, each as a text."""


def stored_rows(store: Store, run_id: int) -> Rows:
    """Return the rows of a run in the database, in the tables that the lake has."""
    found: Rows = {}
    with store._reader.connect() as connection:
        attempts = list(connection.scalars(select(tables.attempt.c.id).where(tables.attempt.c.run_id == run_id)))
        for table in LAKE_TABLES:
            if table.archived is not None:
                source = table.archived.table.c
                is_of_run = source.attempt_id.in_(attempts) if "attempt_id" in source else source.run_id == run_id
                rows = connection.execute(select(*table.archived.columns).where(is_of_run))
                arrow = table.archived.to_arrow([row._asdict() for row in rows])
                found[table.name] = [repr(row) for row in arrow.to_pylist()]
        reports = connection.execute(select(tables.report).where(tables.report.c.run_id == run_id)).all()
    found["sequences"] = [repr(row) for row in sequences_to_arrow(reports).to_pylist()]
    found["batches"] = [repr(row) for row in store.batches.list(run_id, access=EVERYTHING, limit=100_000).items]
    return found


def lake_rows(lake_url: str) -> Rows:
    """Return the rows of a lake; a row that it has twice is there twice."""
    found: Rows = {}
    for table in LAKE_TABLES:
        rows: Any = None
        with suppress(TableNotFoundError):
            rows = DeltaTable(f"{lake_url}/{table.name}").to_pyarrow_table()
        if table is LAKE_BATCHES:
            found[table.name] = [repr(batch_from_lake(row)) for row in _listed(rows)]
        elif table is LAKE_SEQUENCES:
            found[table.name] = [repr(row) for row in _listed(rows, SEQUENCES_SCHEMA.names)]
        elif table.archived is not None:
            found[table.name] = [repr(row) for row in _listed(rows, table.archived.schema.names)]
    return found


def checksums(rows: Rows) -> dict[str, str]:
    """Return the checksum of each table, whatever the order of its rows."""
    return {name: _checksum(table) for name, table in rows.items()}


def merged(parts: Iterable[Rows]) -> Rows:
    """Return the rows of several runs."""
    found: Rows = {}
    for part in parts:
        for name, rows in part.items():
            found.setdefault(name, []).extend(rows)
    return found


def _listed(rows: Any, names: list[str] | None = None) -> list[dict[str, Any]]:
    if rows is None:
        return []
    return list((rows if names is None else rows.select(names)).to_pylist())


def _checksum(rows: Iterable[str]) -> str:
    digest = hashlib.sha256()
    for row in sorted(rows):
        digest.update(row.encode() + b"\n")
    return digest.hexdigest()
