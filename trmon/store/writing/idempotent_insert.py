"""Insert rows once under their natural key, and report which ones are already stored."""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter
from typing import Any

from sqlalchemy import Connection, Table

from trmon.domain.model.messages import WriteOutcome
from trmon.store.database.upsert import Row, insert_new_ids, rows_by_key


def insert_once(
    connection: Connection, table: Table, *, key: Sequence[str], rows: Sequence[Row]
) -> list[tuple[WriteOutcome, Row]]:
    """Insert rows whose key is new, and return for each row the outcome and the stored row with its id.

    Rows of one call may share a key: the first is stored, and the others are compared with it. Rows with the same
    `digest` are equal.
    """
    identity = itemgetter(*key)
    first: dict[Any, Row] = {}
    for row in rows:
        first.setdefault(identity(row), row)
    new = insert_new_ids(connection, table, key=key, rows=list(first.values()))
    stored = {found: {**row, "id": new[found]} for found, row in first.items() if found in new}
    stored |= rows_by_key(connection, table, key=key, values=[value for value in first if value not in new])
    return [
        (_outcome(row, stored[found], new=found in new and row is first[found]), stored[found])
        for row, found in zip(rows, map(identity, rows), strict=True)
    ]


def _outcome(row: Row, stored: Row, *, new: bool) -> WriteOutcome:
    if new:
        return WriteOutcome.STORED
    return WriteOutcome.DUPLICATE if row["digest"] == stored["digest"] else WriteOutcome.CONFLICT
