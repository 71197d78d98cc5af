"""Deleting much in small transactions, so that nobody waits long behind it."""

from __future__ import annotations

from collections.abc import Callable

from sqlalchemy import ColumnElement, Table, delete, select, tuple_

from trmon.store.writing.group_commit import GroupCommit
from trmon.store.writing.transaction import Transaction

PIECE_ROWS = 100
"""Reports are tens of kilobytes each: what waits behind a piece should not notice it."""


def delete_in_batches(
    writer: GroupCommit, table: Table, where: ColumnElement[bool], *, goes_on: Callable[[], bool] = lambda: True
) -> int:
    """Delete the rows of a predicate and return how many they were; other writes go in between.

    Args: goes_on: asked before each piece; what is left when it says no stays for another time.
    """
    deleted = 0
    while goes_on() and (piece := writer.submit(lambda to: _delete_piece(to, table, where)).result()):
        deleted += piece
    return deleted


def _delete_piece(transaction: Transaction, table: Table, where: ColumnElement[bool]) -> int:
    key = list(table.primary_key.columns)
    piece = select(*key).where(where).limit(PIECE_ROWS)
    return transaction.connection.execute(delete(table).where(tuple_(*key).in_(piece))).rowcount
