"""Finds what of a changed PostgreSQL schema breaks processes that know only the schema before."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from sqlalchemy import Connection, Engine
from zstandard import ZstdDecompressor

_FIRST_SCHEMA = Path(__file__).with_name("schema_0001.sql")
_FIRST_FILE = Path(__file__).parents[1] / "fixtures" / "data_of_0_2_0" / "trmon.sqlite.zst"

Key: TypeAlias = tuple[str, str]
"""A table and the name of its column, constraint or index."""

_COLUMNS = """
SELECT c.relname, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull,
       a.atthasdef OR a.attidentity <> '', a.attidentity = '' AND NOT a.atthasdef, a.attstorage::text
FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
WHERE c.relnamespace = 'public'::regnamespace AND c.relkind = 'r' AND a.attnum > 0 AND NOT a.attisdropped
"""
_CONSTRAINTS = """
SELECT conrelid::regclass::text, conname, pg_get_constraintdef(oid), contype::text, confrelid::regclass::text,
       confdeltype::text
FROM pg_constraint WHERE connamespace = 'public'::regnamespace
"""
_INDEXES = """
SELECT tablename, indexname, indexdef FROM pg_indexes
WHERE schemaname = 'public' AND NOT EXISTS (
    SELECT FROM pg_constraint
    WHERE conname = indexname AND conrelid = format('public.%I', tablename)::regclass)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Schema:
    """The tables of a database: rows of the catalogue by table and name."""

    columns: dict[Key, Any]
    constraints: dict[Key, Any]
    indexes: dict[Key, Any]

    @classmethod
    def read(cls, connection: Connection) -> Schema:
        """Return the schema of a database."""
        read = [
            {(row[0], row[1]): row[2:] for row in connection.exec_driver_sql(query.replace("%", "%%"))}
            for query in (_COLUMNS, _CONSTRAINTS, _INDEXES)
        ]
        return cls(columns=read[0], constraints=read[1], indexes=read[2])

    @property
    def tables(self) -> set[str]:
        """The names of the tables."""
        return {table for table, _ in self.columns}


def create_first_schema(engine: Engine) -> None:
    """Create the tables of 0.2.0 in an empty PostgreSQL database, or write a file of it before it is opened."""
    if engine.dialect.name == "sqlite":
        Path(engine.url.database or "").write_bytes(ZstdDecompressor().decompress(_FIRST_FILE.read_bytes()))
        return
    with engine.begin() as connection:
        for statement in _FIRST_SCHEMA.read_text().rstrip().removesuffix(";").split(";\n"):
            connection.exec_driver_sql(statement)


def breaking_changes(before: Schema, after: Schema) -> list[str]:
    """Return what processes of the schema before do not stand, sorted; empty if it is additive."""
    return sorted([*_columns(before, after), *_constraints(before, after), *_indexes(before, after)])


def _columns(before: Schema, after: Schema) -> Iterator[str]:
    for (table, name), (kind, is_required, has_default, *_) in before.columns.items():
        now = after.columns.get((table, name))
        if now is None:
            yield f"{table}.{name} is gone"
        elif now[0] != kind:
            yield f"{table}.{name} was {kind} and is {now[0]}"
        elif now[1] and not is_required:
            yield f"{table}.{name} may not be null any more"
        elif is_required and not now[1]:
            yield f"{table}.{name} may be null, which readers do not expect"
        elif has_default and not now[2]:
            yield f"{table}.{name} has no default any more"
    for (table, name), (_, is_required, _, has_no_default, _) in after.columns.items():
        is_new = table in before.tables and (table, name) not in before.columns
        if is_new and is_required and has_no_default:
            yield f"{table}.{name} is new, required and without default"


def _constraints(before: Schema, after: Schema) -> Iterator[str]:
    for (table, name), (definition, kind, target, on_delete) in after.constraints.items():
        if kind == "n" or before.constraints.get((table, name), (None,))[0] == definition:
            continue
        if table in before.tables:
            yield f"{table} has a new constraint {name}: {definition}"
        elif kind == "f" and target in before.tables and on_delete not in ("c", "n"):
            yield f"{table} keeps rows of {target} from being deleted: {definition}"
    for (table, name), (_, kind, *_) in before.constraints.items():
        if kind in ("p", "u") and (table, name) not in after.constraints and table in after.tables:
            yield f"{table} has no constraint {name} any more, which inserts may rest on"


def _indexes(before: Schema, after: Schema) -> Iterator[str]:
    for (table, name), (definition,) in after.indexes.items():
        if table in before.tables and before.indexes.get((table, name)) != (definition,):
            yield f"{table} cannot be written while its index {name} is built"
    for (table, name), (definition,) in before.indexes.items():
        if "UNIQUE" in definition and (table, name) not in after.indexes and table in after.tables:
            yield f"{table} has no index {name} any more, which inserts may rest on"
