"""Trainer scalars that come before their batch closes, after it, late, and without a batch."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from tests.domain.pipeline.closings import parse_rules
from tests.domain.trainer import finished, made, report
from tests.worker.watched_run import ORIGIN, WATCH_CONFIG, WatchedRun, train
from trmon.domain.identity import BatchKey
from trmon_client.core import wire


@pytest.mark.parametrize("restarts", [False, True])
def test_a_scalar_in_a_chunk_that_comes_late_is_read_before_the_step_ends(restarts: bool) -> None:
    high = "{name: high, severity: warn, immune_steps: 0, when: {signal: grad_norm, above: 1}, summary: x}"
    rules = parse_rules(f"[{high}]")
    watched = WatchedRun(watch_config=replace(WATCH_CONFIG, rules=lambda: rules))
    for step in range(4):
        watched.receive(report(step, finished=finished((step, None, 1))), at=10.0 * step)
    watched.receive(report(3, chunk=1, scalars={"grad_norm": 9.0}), at=35.0)
    if restarts:
        watched.restart()
    watched.receive(report(4, finished=finished((4, None, 1))), at=40.0)
    assert watched.log.told() == [("high", "firing", 3)]


def test_scalars_are_part_of_their_steps_history_even_if_the_next_step_comes_in_the_same_pass() -> None:
    apart, together = WatchedRun(), WatchedRun()
    for step in range(70):
        scalars = wire.Scalars(**ORIGIN, sequence=step, step=step, values={"grad_norm": 1.0 + step % 3})
        first = report(step, finished=finished((step, None, 1)))
        apart.receive(first, at=10.0 * step)
        apart.receive(scalars, at=10.0 * step + 5.0)
        if step == 0:
            together.receive(first, at=0.0)
        after = report(step + 1, finished=finished((step + 1, None, 1)))
        together.receive(scalars, after, at=10.0 * (step + 1))
    key = BatchKey(1, 69, None)
    signals = apart.log.rows[key].signals
    assert "collapse_risk:grad_norm" in signals, "each step has its norm"
    same = {name: value for name, value in signals.items() if name.startswith("collapse_risk")}
    assert {name: together.log.rows[key].signals.get(name) for name in same} == same


def test_a_late_gradient_norm_gives_the_proxies_of_its_step_even_after_a_restart() -> None:
    content = replace(made("healthy"), by_name={**made("healthy"), "advantage": np.linspace(-1.0, 1.0, 8)})
    watched = WatchedRun()
    watched.receive(report(0, content=content, finished=finished((0, None, 1))), at=0.0)
    key = BatchKey(1, 0, None)
    assert "proxy1_signal_strength" not in watched.log.rows[key].signals
    watched.restart()
    watched.receive(wire.Scalars(**ORIGIN, sequence=0, step=0, values={"grad_norm": 0.5}), at=5.0)
    watched.receive(report(1, content=content, finished=finished((1, None, 1))), at=10.0)
    signals = watched.log.rows[key].signals
    assert signals["proxy1_signal_strength"] == 0.25
    for end in ("low", "high"):
        power = signals[f"proxy2_total_power_{end}"]
        assert power > 0
        assert signals[f"proxy3_pure_noise_{end}"] == pytest.approx(max(0.0, power - 0.25) / 7)
    assert "proxy1_signal_strength" not in watched.log.rows[BatchKey(1, 1, None)].signals


def test_scalars_join_their_batch_before_it_closes_and_revise_it_after() -> None:
    watched = WatchedRun()
    note = wire.Scalars(**ORIGIN, sequence=0, step=0, values={"grad_norm": 1.0, "entropy": None})
    watched.receive(report(0, scalars={"lr": 0.1}), note, at=0.0)
    watched.receive(report(1, finished=finished((0, None, 1))), at=10.0)
    row = watched.log.rows[BatchKey(1, 0, None)]
    assert row.scalars["lr"] == 0.1
    assert row.scalars["grad_norm"] == 1.0
    assert math.isnan(row.scalars["entropy"])
    watched.receive(wire.Scalars(**ORIGIN, sequence=1, step=0, values={"grad_norm": 2.0}), at=20.0)
    after = watched.log.rows[row.key]
    assert (after.scalars["grad_norm"], after.ordinal) == (2.0, row.ordinal)
    assert watched.view.scalars["grad_norm"] == 2.0


def test_pending_scalars_survive_a_restart() -> None:
    watched = WatchedRun()
    watched.receive(report(0), wire.Scalars(**ORIGIN, sequence=0, step=0, values={"grad_norm": 1.0}), at=0.0)
    watched.restart()
    watched.receive(report(1, finished=finished((0, None, 1))), at=10.0)
    assert watched.log.rows[BatchKey(1, 0, None)].scalars == {"grad_norm": 1.0}


def test_scalars_of_a_step_without_a_batch_are_counted() -> None:
    watched = WatchedRun()
    train(watched, range(3, 6))
    watched.receive(wire.Scalars(**ORIGIN, sequence=0, step=1, values={"eval": 1.0}), at=60.0)
    assert watched.observer.passes[-1].unplaced_scalars == 1
