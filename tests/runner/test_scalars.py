"""The trainer's own numbers, pass by pass: before their batch, after it, late, and without one."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from tests.domain.trainer import finished, report
from tests.runner.watched_run import ORIGIN, VIGIL, Watched, train
from trmon.domain.model.identity import BatchKey
from trmon.domain.rules import rule_yaml
from trmon_client.core import wire


def test_a_spike_of_a_late_scalar_is_told_once_over_restarts() -> None:
    calm, shaken, forgetful = Watched(), Watched(), Watched()
    for step in range(45):
        message = report(step, finished=finished((step, None, 1)))
        scalars = wire.Scalars(
            **ORIGIN, sequence=step, step=step, values={"grad_norm": 50.0 if step == 40 else 1.0 + step % 3}
        )
        for watched in (calm, shaken, forgetful):
            watched.hear(message, at=10.0 * step)
            watched.hear(scalars, at=10.0 * step + 5.0)
        shaken.restart()
        forgetful.log.forget_checkpoint()
        forgetful.restart()
    for watched in (calm, shaken, forgetful):
        assert watched.log.told() == [("gradient_spike", "firing", 40)]
    assert shaken.log.alert_events == forgetful.log.alert_events == calm.log.alert_events


@pytest.mark.parametrize("restarts", [False, True])
def test_a_scalar_in_a_chunk_that_comes_late_is_read_before_the_step_ends(restarts: bool) -> None:
    high = "{name: high, severity: warn, immune_steps: 0, when: {signal: grad_norm, above: 1}, summary: x}"
    rules = rule_yaml.parse_rules(f"[{high}]")
    watched = Watched(watch_config=replace(VIGIL, rules=lambda: rules))
    for step in range(4):
        watched.hear(report(step, finished=finished((step, None, 1))), at=10.0 * step)
    watched.hear(report(3, chunk=1, scalars={"grad_norm": 9.0}), at=35.0)
    if restarts:
        watched.restart()
    watched.hear(report(4, finished=finished((4, None, 1))), at=40.0)
    assert watched.log.told() == [("high", "firing", 3)]


def test_scalars_join_their_batch_before_it_closes_and_revise_it_after() -> None:
    watched = Watched()
    note = wire.Scalars(**ORIGIN, sequence=0, step=0, values={"grad_norm": 1.0, "entropy": None})
    watched.hear(report(0, scalars={"lr": 0.1}), note, at=0.0)
    watched.hear(report(1, finished=finished((0, None, 1))), at=10.0)
    row = watched.log.rows[BatchKey(1, 0, None)]
    assert row.scalars["lr"] == 0.1
    assert row.scalars["grad_norm"] == 1.0
    assert math.isnan(row.scalars["entropy"])
    watched.hear(wire.Scalars(**ORIGIN, sequence=1, step=0, values={"grad_norm": 2.0}), at=20.0)
    after = watched.log.rows[row.key]
    assert (after.scalars["grad_norm"], after.ordinal) == (2.0, row.ordinal)
    assert watched.view.scalars["grad_norm"] == 2.0


def test_scalars_that_wait_outlive_a_kill() -> None:
    watched = Watched()
    watched.hear(report(0), wire.Scalars(**ORIGIN, sequence=0, step=0, values={"grad_norm": 1.0}), at=0.0)
    watched.restart()
    watched.hear(report(1, finished=finished((0, None, 1))), at=10.0)
    assert watched.log.rows[BatchKey(1, 0, None)].scalars == {"grad_norm": 1.0}


def test_scalars_of_a_step_without_a_batch_are_counted() -> None:
    watched = Watched()
    train(watched, range(3, 6))
    watched.hear(wire.Scalars(**ORIGIN, sequence=0, step=1, values={"eval": 1.0}), at=60.0)
    assert watched.counted.passes[-1].unplaced_scalars == 1
