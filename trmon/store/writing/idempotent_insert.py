"""Storing a thing once under its natural key, and saying what already stands there."""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter
from typing import Any

from sqlalchemy import Connection, Table

from trmon.domain.model.messages import WriteOutcome
from trmon.store.database.upsert import Row, insert_new_ids, rows_by_key


def store_once(
    connection: Connection, table: Table, *, key: Sequence[str], rows: Sequence[Row]
) -> list[tuple[WriteOutcome, Row]]:
    """Insert rows whose key is new, and return for each row what became of it and the row that stands, with its id.

    Rows of one call may share a key: the first is stored, the others are judged by it. Rows are the same when their
    `digest` is.
    """
    identity = itemgetter(*key)
    first: dict[Any, Row] = {}
    for row in rows:
        first.setdefault(identity(row), row)
    new = insert_new_ids(connection, table, key=key, rows=list(first.values()))
    standing = {found: {**row, "id": new[found]} for found, row in first.items() if found in new}
    standing |= rows_by_key(connection, table, key=key, found=[found for found in first if found not in new])
    return [
        (_judged(row, standing[found], new=found in new and row is first[found]), standing[found])
        for row, found in zip(rows, map(identity, rows), strict=True)
    ]


def _judged(row: Row, standing: Row, *, new: bool) -> WriteOutcome:
    if new:
        return WriteOutcome.STORED
    return WriteOutcome.DUPLICATE if row["digest"] == standing["digest"] else WriteOutcome.CONFLICT
