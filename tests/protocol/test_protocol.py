"""The protocol holds for random trainers, faults and workers, on SQLite and PostgreSQL, and where it once did not."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from tests.protocol.machine import Protocol

EXAMPLES = settings(max_examples=12, stateful_step_count=25, print_blob=True)


@pytest.mark.fuzz
def test_the_protocol_holds_on_sqlite(on_sqlite: type[Protocol]) -> None:
    run_state_machine_as_test(on_sqlite, settings=EXAMPLES)


@pytest.mark.fuzz
@pytest.mark.server("postgres")
def test_the_protocol_holds_on_postgresql(on_postgres: type[Protocol]) -> None:
    run_state_machine_as_test(on_postgres, settings=EXAMPLES)


def test_a_report_from_before_a_fork_is_sent_again(on_sqlite: type[Protocol]) -> None:
    machine = on_sqlite()
    machine.begin()
    machine.train(run="two", rank=1, same_step=False, is_ill=False)
    machine.relaunch(run="two", is_new_attempt=False, goes_back=False, silence=False)
    machine.train(run="two", rank=0, same_step=False, is_ill=False)
    machine.train_step(run="two", is_ill=False)
    for i in range(4):
        for seed in (0, 1):
            machine.repeat(i=i, seed=seed)
            machine.acknowledged_is_durable_and_once()
    machine.teardown()
