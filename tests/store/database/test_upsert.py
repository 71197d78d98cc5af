"""Tests that inserts, upserts and updates behave the same on both databases."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from sqlalchemy import Connection, select
from sqlalchemy.exc import IntegrityError

from tests.store.builders import NOW
from trmon.store.database.engines import Engines
from trmon.store.database.upsert import insert_new, insert_new_ids, insert_rows, update_rows, upsert
from trmon.store.schema import tables


@pytest.fixture
def connection(engines: Engines) -> Iterator[Connection]:
    """A transaction in a migrated database that is never committed."""
    with engines.writing.connect() as opened, opened.begin():
        yield opened


def silence(note: str, **fields: object) -> dict[str, object]:
    usual = {"project": None, "matchers": [{"label": "rule"}], "author": "me", "starts_at": NOW, "ends_at": NOW + 1}
    return {"note": note, **usual, **fields}


def notes(connection: Connection) -> list[tuple[str, float]]:
    """Return the notes and end times of silences in id order."""
    table = tables.silence.c
    return [tuple(row) for row in connection.execute(select(table.note, table.ends_at).order_by(table.id))]


def test_no_rows_execute_no_statement(connection: Connection) -> None:
    insert_rows(connection, tables.silence, rows=[])
    insert_new(connection, tables.project, rows=[])
    upsert(connection, tables.project, key=("name",), rows=[])
    update_rows(connection, tables.silence, rows=[])
    assert insert_new_ids(connection, tables.silence, key=("note",), rows=[]) == {}
    assert notes(connection) == []


def test_existing_rows_are_skipped_or_replaced(connection: Connection) -> None:
    table = tables.project.c
    rows = [{"name": "math", "created_at": 1.0}, {"name": "code", "created_at": 2.0}]
    insert_new(connection, tables.project, rows=rows[:1])
    insert_new(connection, tables.project, rows=[{"name": "math", "created_at": 3.0}])
    assert connection.scalars(select(table.created_at)).all() == [1.0]
    upsert(connection, tables.project, key=("name",), rows=[{**row, "created_at": 4.0} for row in rows])
    assert connection.scalars(select(table.created_at)).all() == [4.0, 4.0]


def test_new_rows_get_ids_in_order_and_existing_rows_get_none(connection: Connection) -> None:
    rows = [{"names": name} for name in "abc"]
    first = insert_new_ids(connection, tables.name_set, key=("names",), rows=rows[1:2])
    then = insert_new_ids(connection, tables.name_set, key=("names",), rows=rows)
    assert list(first) == [("b",)]
    assert list(then) == [("a",), ("c",)]
    assert first["b",] < then["a",] < then["c",]
    written = connection.execute(select(tables.name_set.c.names, tables.name_set.c.id))
    assert {(row.names,): row.id for row in written} == first | then


def test_values_use_their_column_types(connection: Connection) -> None:
    insert_rows(connection, tables.silence, rows=[silence("one"), silence("two", matchers=[])])
    assert connection.scalars(select(tables.silence.c.matchers).order_by(tables.silence.c.id)).all() == [
        [{"label": "rule"}],
        [],
    ]


def test_rows_are_updated_by_id_and_others_are_unchanged(connection: Connection) -> None:
    insert_rows(connection, tables.silence, rows=[silence(note) for note in "abc"])
    ids = connection.scalars(select(tables.silence.c.id).order_by(tables.silence.c.id)).all()
    update_rows(
        connection,
        tables.silence,
        rows=[{"id": ids[0], "note": "A", "ends_at": 1.0}, {"id": ids[2], "note": "C", "ends_at": 2.0}],
    )
    assert notes(connection) == [("A", 1.0), ("b", NOW + 1), ("C", 2.0)]


def test_a_constraint_violation_is_refused(connection: Connection) -> None:
    orphan = {"run_id": 1, "at": NOW, "kind": "batch", "data": {}}
    with pytest.raises(IntegrityError), connection.begin_nested():
        insert_rows(connection, tables.event, rows=[orphan])
    assert connection.scalars(select(tables.event.c.id)).all() == []
