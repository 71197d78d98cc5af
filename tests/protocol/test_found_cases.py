"""Histories in which the state machine once found a defect."""

from __future__ import annotations

from tests.protocol.machine import Protocol


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
