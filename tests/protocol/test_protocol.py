"""The protocol holds for random trainers, faults and workers, on SQLite and on PostgreSQL."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from tests.protocol.machine import Protocol

pytestmark = pytest.mark.fuzz

EXAMPLES = settings(max_examples=12, stateful_step_count=25, print_blob=True)


def test_the_protocol_holds_on_sqlite(on_sqlite: type[Protocol]) -> None:
    run_state_machine_as_test(on_sqlite, settings=EXAMPLES)


@pytest.mark.server("postgres")
def test_the_protocol_holds_on_postgresql(on_postgres: type[Protocol]) -> None:
    run_state_machine_as_test(on_postgres, settings=EXAMPLES)
