"""Trainer scalars: beside the reports of their steps, late, and of runs that send no report."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.domain.pipeline.closings import parse_rules
from tests.domain.trainer import finished, made, report
from tests.worker.watched_run import ORIGIN, WATCH_CONFIG, WatchedRun, train
from trmon.domain.identity import BatchKey
from trmon.domain.runs.run import RunState
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


LOW = "{name: low, severity: page, immune_steps: 0, for_steps: 2, when: {signal: reward_mean, below: 0.2}, summary: x}"
SPIKE = "{name: spike, severity: warn, immune_steps: 0, when: {signal: grad_norm, above: 9}, summary: x}"
WATCHING = replace(WATCH_CONFIG, rules=lambda: parse_rules(f"[{LOW}, {SPIKE}]"))


def scalars(step: int, values: Mapping[str, float] | None = None, **fields: Any) -> wire.Scalars:
    given = {**ORIGIN, "sequence": step, "sent_at": 1000.0 + 10.0 * step, **fields}
    return wire.Scalars(**given, step=step, values={"reward": 0.5, "entropy": 1.0, **(values or {})})


def finish(**fields: Any) -> wire.Finish:
    return wire.Finish(**{**ORIGIN, "sequence": 999, "sent_at": 9000.0, **fields})


def reported(n_steps: int) -> WatchedRun:
    """Return a run that has sent the scalars of steps ten seconds apart."""
    watched = WatchedRun()
    for step in range(n_steps):
        watched.receive(scalars(step), at=10.0 * step)
    return watched


def steps(watched: WatchedRun) -> list[int]:
    """Return the steps of the stored rows in the order in which they were folded."""
    return [row.key.step for row in sorted(watched.log.rows.values(), key=lambda row: row.ordinal)]


def test_each_step_becomes_a_row_when_the_next_one_follows_and_the_last_one_at_the_end() -> None:
    watched = reported(3)
    assert steps(watched) == [0, 1]
    watched.receive(finish(), at=30.0)
    assert steps(watched) == [0, 1, 2]
    row = watched.log.rows[BatchKey(1, 1, None)]
    assert (row.n_sequences, row.n_ranks, row.complete, row.policy_hash) == (0, 1, True, None)
    assert row.scalars == {"reward": 0.5, "entropy": 1.0}
    assert (row.signals["reward_mean"], row.signals["step_seconds"]) == (0.5, 10.0)
    run = watched.log.stored_run
    assert (run.state, run.last_step) == (RunState.FINISHED, 2)
    assert watched.view.signals["reward_mean"] == 0.5


@pytest.mark.parametrize("disturbance", ["none", "a restart after each step", "a restart without a checkpoint"])
def test_rules_read_the_rows_and_fire_once_over_restarts(disturbance: str) -> None:
    watched = WatchedRun(watch_config=WATCHING)
    for step in range(12):
        values = {"reward": 0.1 if step >= 6 else 0.5, "grad_norm": 10.0 if step == 3 else 1.0}
        watched.receive(scalars(step, values), at=10.0 * step)
        if disturbance == "a restart without a checkpoint":
            watched.log.forget_checkpoint()
        if disturbance != "none":
            watched.restart()
    watched.receive(finish(outcome="crashed"), at=130.0)
    watched.receive(scalars(5), at=131.0)
    assert steps(watched) == list(range(12))
    assert watched.log.told() == [("spike", "firing", 3), ("spike", "resolved", 4), ("low", "firing", 7)]


def test_scalars_that_come_again_or_late_revise_their_row_and_add_none() -> None:
    watched = reported(4)
    watched.receive(scalars(1, {"reward": 0.9, "loss": 2.0}, sequence=50), at=40.0)
    row = watched.log.rows[BatchKey(1, 1, None)]
    assert (row.ordinal, row.scalars["loss"], row.signals["reward_mean"]) == (2, 2.0, 0.9)
    assert steps(watched) == [0, 1, 2]


def test_a_late_report_revises_the_row_of_its_step() -> None:
    watched = reported(3)
    watched.receive(report(1, finished=finished((1, None, 1))), at=30.0)
    row = watched.log.rows[BatchKey(1, 1, None)]
    assert (row.ordinal, row.n_sequences, row.revised) == (2, 8, True)
    assert row.scalars == {"reward": 0.5, "entropy": 1.0}
    assert row.signals["reward_mean"] != 0.5


def test_scalars_beside_reports_make_no_rows_of_their_own() -> None:
    watched = WatchedRun()
    watched.receive(scalars(0), report(0), at=0.0)
    for step in range(1, 6):
        watched.receive(scalars(100 * step, sequence=100 + step), at=10.0 * step)
        watched.receive(report(step, finished=finished((step - 1, None, 1))), scalars(step), at=10.0 * step + 1)
    watched.restart()
    watched.receive(scalars(700, sequence=700), scalars(800, sequence=800), finish(), at=70.0)
    assert steps(watched) == list(range(6))


def test_a_step_waits_for_the_report_that_follows_its_scalars() -> None:
    watched = WatchedRun()
    watched.receive(scalars(0), at=0.0)
    watched.tick(1000.0)
    assert steps(watched) == []
    watched.receive(report(0, finished=finished((0, None, 1))), at=1001.0)
    (row,) = watched.log.rows.values()
    assert (row.n_sequences, row.revised, row.scalars["reward"]) == (8, False, 0.5)


def test_a_step_waits_for_all_ranks_that_sent_scalars_of_it_or_for_the_grace_period() -> None:
    watched = WatchedRun()
    for step in range(2):
        for rank, reward in ((1, 0.1), (0, 0.9)):
            watched.receive(scalars(step, {"reward": reward}, rank=rank, world_size=2), at=10.0 * step + rank)
    assert steps(watched) == [0]
    row = watched.log.rows[BatchKey(1, 0, None)]
    assert (row.n_ranks, row.scalars["reward"]) == (2, 0.9)
    watched.receive(scalars(2, rank=0, world_size=2), at=20.0)
    assert steps(watched) == [0], "rank 1 has not moved on"
    watched.tick(90.0)
    assert steps(watched) == [0, 1, 2]


def test_a_killed_run_closes_its_last_step_by_the_clock_and_stalls() -> None:
    watched = reported(25)
    assert steps(watched)[-1] == 23
    watched.tick(240.0 + 61.0)
    assert steps(watched)[-1] == 24
    assert watched.log.stored_run.state is RunState.RUNNING
    watched.tick(240.0 + 121.0)
    assert watched.log.stored_run.state is RunState.STALLED
    watched.receive(scalars(25), at=900.0)
    assert watched.log.stored_run.state is RunState.RUNNING
    assert watched.log.told() == [("stalled", "firing", 24), ("stalled", "resolved", 24)]


def test_a_restart_of_the_trainer_closes_the_last_step_before_it() -> None:
    watched = reported(3)
    for step in range(2, 4):
        watched.receive(scalars(step, attempt="b", launch="launch-2"), at=100.0 + step)
    assert [row.key for row in sorted(watched.log.rows.values(), key=lambda row: row.ordinal)] == [
        *(BatchKey(1, step, None) for step in range(3)),
        BatchKey(2, 2, None),
    ]


def test_a_run_that_is_read_after_its_end_has_the_same_rows() -> None:
    watched, at_once = reported(600), WatchedRun()
    for step in range(600):
        at_once.log.receive(scalars(step), at=10.0 * step)
    for one in (watched, at_once):
        one.receive(finish(), at=6000.0)
    assert steps(at_once) == steps(watched) == list(range(600))
    for row in at_once.log.rows.values():
        assert row.signals == pytest.approx(watched.log.rows[row.key].signals, nan_ok=True)


def test_a_value_that_is_not_a_number_stays_one() -> None:
    watched = WatchedRun()
    watched.receive(scalars(0, {"reward": math.nan}), scalars(1), at=0.0)
    assert math.isnan(watched.log.rows[BatchKey(1, 0, None)].signals["reward_mean"])
