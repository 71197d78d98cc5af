"""A text of a stored JSON document as an SQL expression, on both databases."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Text
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement


class json_text(FunctionElement[str]):  # noqa: N801 - named as the SQL function it is
    """`json_text(column, key)`: the text at a key of an object that is stored as text; NULL without the key."""

    type = Text()
    name = "json_text"
    inherit_cache = True


@compiles(json_text, "sqlite")
def _on_sqlite(element: json_text, compiler: SQLCompiler, **given: Any) -> str:
    column, key = element.clauses
    return f"json_extract({compiler.process(column, **given)}, '$.' || {compiler.process(key, **given)})"


@compiles(json_text, "postgresql")
def _on_postgresql(element: json_text, compiler: SQLCompiler, **given: Any) -> str:
    column, key = element.clauses
    return f"(CAST({compiler.process(column, **given)} AS json) ->> {compiler.process(key, **given)})"
