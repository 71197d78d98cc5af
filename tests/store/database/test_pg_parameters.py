"""Tests parameters in PostgreSQL's binary format against a real server."""

from __future__ import annotations

import math
from typing import Any

import pytest
from sqlalchemy import ARRAY, BigInteger, Boolean, Double, Integer, LargeBinary, Text, bindparam, select
from sqlalchemy.types import TypeEngine

from trmon.store.database import postgres
from trmon.store.database.pg_statement import PgStatement

pytestmark = pytest.mark.server("postgres")


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (BigInteger(), [0, -1, 2**63 - 1, -(2**63), None]),
        (Integer(), [1, -(2**31), None]),
        (Double(), [0.1, -math.inf, 5e-324, None]),
        (Boolean(), [True, False, None]),
        (Text(), ["", "grüße 🦙", "NULL", '{"a,b"}', None]),
        (LargeBinary(), [b"", bytes(range(256)), None]),
    ],
)
def test_an_array_round_trips(postgres_url: str, kind: TypeEngine[Any], values: list[Any]) -> None:
    statement = PgStatement(select(bindparam("given", type_=ARRAY(kind, dimensions=1))))
    engines = postgres.postgres_engines(postgres_url)
    with engines.writing.begin() as connection:
        for given in (values, values[:1], [], [None]):
            assert statement.rows(connection, statement.encode({"given": given})) == [(given,)]
    engines.dispose()
