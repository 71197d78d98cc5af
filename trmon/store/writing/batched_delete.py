"""Delete many rows in small transactions, so that other writes do not wait long."""

from __future__ import annotations

from collections.abc import Callable

from sqlalchemy import ColumnElement, Table, delete, select, tuple_

from trmon.store.writing.group_commit import GroupCommit
from trmon.store.writing.transaction import Transaction

BATCH_ROWS = 100
"""Rows per transaction; a report has tens of kilobytes."""


def delete_in_batches(
    writer: GroupCommit, table: Table, where: ColumnElement[bool], *, may_continue: Callable[[], bool] = lambda: True
) -> int:
    """Delete the rows that match a predicate and return their number; other writes run in between.

    Args: may_continue: called before each transaction; when it returns False, the remaining rows stay.
    """
    deleted = 0
    while may_continue() and (n := writer.submit(lambda to: _delete_batch(to, table, where)).result()):
        deleted += n
    return deleted


def _delete_batch(transaction: Transaction, table: Table, where: ColumnElement[bool]) -> int:
    key = list(table.primary_key.columns)
    batch = select(*key).where(where).limit(BATCH_ROWS)
    return transaction.connection.execute(delete(table).where(tuple_(*key).in_(batch))).rowcount
