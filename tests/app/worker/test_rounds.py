"""What becomes of a run's messages, pass by pass, with the clock set by hand."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from tests.app.watching import VIGIL, Watched
from tests.domain.trainer import finished, report
from trmon.domain.alerts.alert import AlertState
from trmon.domain.batch import Role
from trmon.domain.identity import BatchKey
from trmon.domain.policies.version import PolicyVersion
from trmon.domain.runs.run import RunState
from trmon_client.core import wire
from trmon_client.core.acceptance import preset

ORIGIN = {"attempt": "a", "launch": "launch-1"}


def train(watched: Watched, steps: range, *, health: str = "healthy", **fields: object) -> None:
    """Report steps one after the other, ten seconds apart; each states the chunk count of the one before."""
    for step in steps:
        counts = finished((step - 1, None, 1)) if step else []
        watched.hear(report(step, health=health, finished=counts, **fields), at=10.0 * step)


def finish(step: int, *, rank: int = 0, outcome: str = "finished", **fields: object) -> wire.Finish:
    """Return the end of a rank, `step` its last one."""
    return wire.Finish(
        **{**ORIGIN, "sequence": 9, "rank": rank, "outcome": outcome, "sent_at": 5000.0, **fields},
        finished=finished((step, None, 1)),
    )


def test_a_batch_closes_when_the_next_report_counts_its_chunks() -> None:
    watched = Watched()
    watched.hear(report(0), at=0.0)
    assert not watched.log.rows
    watched.hear(report(1, finished=finished((0, None, 1))), at=10.0)
    (row,) = watched.log.rows.values()
    assert (row.key.step, row.ordinal, row.complete, row.n_sequences, row.mismatches) == (0, 1, True, 8, 0)
    assert row.signals["total_kl_k3"] > 0


def test_finish_closes_what_is_open_and_the_run() -> None:
    watched = Watched()
    watched.hear(report(0), finish(0), at=0.0)
    assert [row.complete for row in watched.log.rows.values()] == [True]
    assert watched.log.stored_run.state is RunState.FINISHED
    assert not watched.log.unfinished_runs()


def test_ranks_are_merged_in_the_order_of_their_rank_whatever_came_first() -> None:
    watched = Watched()
    watched.hear(report(0, rank=1, world_size=2), at=0.0)
    watched.hear(report(0, rank=0, world_size=2, scalars={"lr": 1.0}), at=1.0)
    watched.hear(report(1, rank=1, world_size=2, finished=finished((0, None, 1))), at=10.0)
    assert not watched.log.rows
    watched.hear(report(1, rank=0, world_size=2, finished=finished((0, None, 1))), at=11.0)
    (row,) = watched.log.rows.values()
    assert (row.n_ranks, row.n_sequences, row.complete, row.scalars) == (2, 16, True, {"lr": 1.0})
    active = watched.log.decisions[row.key, preset("trm").hash]
    bits = [wire.unpack_bits(stored.accepted, 8).tolist() for stored in watched.log.batch_reports(row.key)]
    assert wire.unpack_bits(active.accepted, 16).tolist() == bits[0] + bits[1]


def test_a_missing_rank_is_waited_for_until_the_grace_ends_and_holds_back_later_batches() -> None:
    watched = Watched()
    for step in range(3):
        counts = finished((step - 1, None, 1)) if step else []
        watched.hear(report(step, rank=0, world_size=2, finished=counts), at=float(step))
    watched.tick(59.0)
    assert not watched.log.rows
    watched.tick(60.5)
    (row,) = watched.log.rows.values()
    assert (row.key.step, row.complete, row.missing_ranks) == (0, False, (1,))


def test_a_batch_whose_chunks_are_merely_uncounted_is_complete_after_the_grace() -> None:
    watched = Watched()
    watched.hear(report(0, chunk=0), report(0, chunk=1), at=0.0)
    watched.tick(61.0)
    (row,) = watched.log.rows.values()
    assert (row.complete, row.n_sequences) == (True, 16)


def test_a_late_chunk_revises_the_row_and_is_not_folded_again() -> None:
    watched = Watched()
    watched.hear(report(0), at=0.0)
    watched.hear(report(1, finished=finished((0, None, 2))), at=10.0)
    watched.tick(80.0)
    key = BatchKey(1, 0, None)
    before = watched.log.rows[key]
    assert not before.complete
    watched.hear(report(0, chunk=1), at=90.0)
    after = watched.log.rows[key]
    assert (after.ordinal, after.closed_at) == (before.ordinal, before.closed_at)
    assert (after.revised, after.complete, after.n_sequences) == (True, True, 16)
    assert len(watched.log.rows) == 2
    assert [tally.late_reports for tally in watched.counted.passes][-1] == 1


def test_a_batch_that_comes_after_its_place_is_kept_but_never_folded() -> None:
    watched = Watched()
    train(watched, range(2, 5))
    watched.hear(report(0, finished=finished((0, None, 1))), at=50.0)
    late = watched.log.rows[BatchKey(1, 0, None)]
    assert (late.ordinal, late.revised) == (3, True)
    assert math.isnan(late.signals["step_seconds"])
    watched.restart()
    watched.hear(report(5, finished=finished((4, None, 1))), at=60.0)
    assert watched.log.rows[BatchKey(1, 4, None)].ordinal == 4


def test_the_same_history_is_made_whether_or_not_the_service_is_killed_on_the_way() -> None:
    calm, shaken, forgetful = Watched(), Watched(), Watched()
    for step in range(40):
        health = "corrupt" if 24 <= step < 31 else "healthy"
        message = report(step, health=health, finished=finished((step - 1, None, 1)) if step else [])
        scalars = wire.Scalars(**ORIGIN, sequence=step, step=step, values={"grad_norm": float(step)})
        for watched in (calm, shaken, forgetful):
            watched.hear(message, scalars, at=10.0 * step)
        shaken.restart()
        forgetful.log.forget_checkpoint()
        forgetful.restart()
    told = [(state, step) for rule, state, step in calm.log.told() if rule == "corrupt_logprobs"]
    assert told == [("firing", 26), ("resolved", 35)]
    for other in (shaken, forgetful):
        assert repr(other.log.rows) == repr(calm.log.rows)
        assert other.log.decisions == calm.log.decisions
        assert other.log.alert_events == calm.log.alert_events
        assert other.log.deliveries == calm.log.deliveries
        assert other.log.alerts == calm.log.alerts


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


def test_a_commit_that_fails_is_tried_again_and_nothing_is_lost_or_repeated() -> None:
    watched = Watched()
    train(watched, range(25), health="corrupt")
    watched.log.receive(report(25, health="corrupt", finished=finished((24, None, 1))), at=250.0)
    watched.log.broken = True
    watched.tick(250.0)
    assert isinstance(watched.counted.failures[0], OSError)
    watched.log.broken = False
    watched.tick(250.5)
    assert BatchKey(1, 24, None) not in watched.log.rows
    assert watched.rounds.due(251.0) == {1}
    watched.tick(251.0)
    assert watched.log.rows[BatchKey(1, 24, None)].ordinal == 25
    assert [step for rule, _, step in watched.log.told() if rule == "corrupt_logprobs"] == [2]


def test_a_run_that_is_gone_is_forgotten_without_a_failure() -> None:
    watched = Watched()
    assert watched.rounds.make({77}, now=0.0) == set()
    assert not watched.counted.failures


def test_alerts_fire_once_are_delivered_once_and_resolve() -> None:
    watched = Watched()
    train(watched, range(6), health="corrupt")
    ((key, delivery),) = watched.log.deliveries.items()
    assert delivery.receiver == "hook"
    assert key == "hook:1/corrupt_logprobs:1:2:firing"
    assert delivery.body["status"] == "firing"
    assert delivery.body["url"] == "https://trmon.example/runs/math/grpo?step=2"
    assert [alert.rule for alert in watched.view.alerts] == ["corrupt_logprobs"]
    train(watched, range(6, 12))
    assert watched.log.told()[-1] == ("corrupt_logprobs", "resolved", 10)
    assert len(watched.log.deliveries) == 2
    assert not watched.view.alerts


def test_a_healthy_run_raises_nothing() -> None:
    watched = Watched()
    train(watched, range(60))
    assert not watched.log.alerts


@pytest.mark.parametrize(
    ("health", "expected"),
    [
        pytest.param("noisy", {"engine_mismatch", "variance_blowup", "mask_rate"}, id="engines that differ"),
        pytest.param("corrupt", {"corrupt_logprobs"}, id="padded log-probs also show as everything else, later"),
    ],
)
def test_a_broken_run_is_found_by_the_rules_for_it(health: str, expected: set[str]) -> None:
    watched = Watched()
    train(watched, range(30), health=health)
    assert {rule for rule, state, _ in watched.log.told() if state == "firing"} >= expected


def test_only_corrupt_log_probs_fire_within_the_first_twenty_steps() -> None:
    watched = Watched()
    train(watched, range(21), health="corrupt")
    assert {rule for rule, _, _ in watched.log.told()} == {"corrupt_logprobs"}


def test_updates_of_a_step_are_rows_of_their_own_and_the_last_is_its_gauge() -> None:
    watched = Watched()
    place = 0
    for step in range(8):
        for update in range(2):
            counts = finished((step, 0, 1)) if update else (finished((step - 1, 1, 1)) if step else [])
            health = "healthy" if update else "corrupt"
            watched.hear(report(step, update=update, health=health, finished=counts), at=float(place))
            place += 1
    assert [row.key.update for row in watched.log.rows.values()][:4] == [0, 1, 0, 1]
    assert not watched.log.alerts
    assert watched.view.row is not None


def test_the_rollout_row_is_the_gauge_where_there_is_one() -> None:
    watched = Watched()
    for step in range(5):
        before = finished((step - 1, 0, 1)) if step else []
        watched.hear(report(step, health="corrupt", finished=before), at=10.0 * step)
        watched.hear(report(step, update=0, finished=finished((step, None, 1))), at=10.0 * step + 1)
    assert watched.log.told() == [("corrupt_logprobs", "firing", 2)]
    assert watched.view.row.key.update is None


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


def test_a_silent_run_stalls_once_and_its_return_resolves_it() -> None:
    watched = Watched()
    train(watched, range(30))
    watched.tick(290.0 + 119.0)
    assert watched.log.stored_run.state is RunState.RUNNING
    watched.tick(290.0 + 121.0)
    watched.restart()
    watched.tick(290.0 + 500.0)
    assert watched.log.stored_run.state is RunState.STALLED
    watched.hear(report(30, finished=finished((29, None, 1))), at=900.0)
    assert watched.log.stored_run.state is RunState.RUNNING
    assert watched.log.told() == [("stalled", "firing", 29), ("stalled", "resolved", 29)]
    assert [delivery.body["status"] for delivery in watched.log.deliveries.values()] == ["firing", "resolved"]


def test_a_restart_of_the_service_does_not_take_an_old_report_for_a_return() -> None:
    watched = Watched()
    train(watched, range(25))
    watched.tick(400.0)
    watched.restart()
    watched.tick(401.0)
    assert watched.log.stored_run.state is RunState.STALLED
    assert [state for _, state, _ in watched.log.told()] == ["firing"]


def test_what_the_service_slept_through_is_not_the_trainers_silence() -> None:
    watched = Watched()
    train(watched, range(25))
    watched.restart()
    watched.tick(10_000.0)
    assert watched.log.stored_run.state is RunState.RUNNING
    watched.tick(10_121.0)
    assert watched.log.stored_run.state is RunState.STALLED


def test_a_paused_run_does_not_stall() -> None:
    watched = Watched()
    train(watched, range(25))
    watched.hear(wire.Pause(**ORIGIN, sequence=0, reason="evaluation"), at=250.0)
    watched.tick(5000.0)
    assert watched.log.stored_run.state is RunState.PAUSED
    watched.hear(report(25, finished=finished((24, None, 1))), at=5001.0)
    assert watched.log.stored_run.state is RunState.RUNNING
    assert not watched.log.alerts


def test_a_heartbeat_after_the_newest_report_buys_time_up_to_the_longer_limit() -> None:
    watched = Watched()
    train(watched, range(25))
    for at in range(270, 900, 30):
        watched.hear(wire.Heartbeat(**ORIGIN), at=float(at))
        expected = RunState.RUNNING if at <= 240 + 600 else RunState.STALLED
        assert watched.log.stored_run.state is expected, at


def test_a_crash_pages_and_a_restart_resolves_it() -> None:
    watched = Watched()
    train(watched, range(25))
    watched.hear(finish(24, outcome="crashed", error="CUDA out of memory"), at=250.0)
    assert watched.log.stored_run.state is RunState.CRASHED
    watched.hear(report(3, rank=0, launch="launch-1", chunk=1), at=251.0)
    assert watched.log.stored_run.state is RunState.CRASHED, "the tail of the launch that ended"
    watched.restart()
    watched.hear(report(25, launch="launch-2"), at=400.0)
    assert watched.log.stored_run.state is RunState.RUNNING
    assert watched.log.told() == [("crashed", "firing", 24), ("crashed", "resolved", 24)]
    errors = [event.data["error"] for event in watched.log.events if event.kind == "state"]
    assert errors == ["CUDA out of memory", ""]
    assert watched.log.deliveries["hook:1/crashed:1:silence-240.000:firing"].body["alert"]["severity"] == "page"


def test_a_crash_in_the_first_steps_warns_instead_of_paging() -> None:
    watched = Watched()
    watched.hear(report(0), finish(0, outcome="crashed"), at=0.0)
    (alert,) = watched.log.alerts.values()
    assert (alert.rule, alert.severity.value) == ("crashed", "warn")


def test_a_finished_run_resolves_its_alerts_and_says_so() -> None:
    watched = Watched()
    train(watched, range(25), health="corrupt")
    told = set(watched.log.deliveries)
    watched.hear(finish(24), at=250.0)
    assert watched.log.told()[-1][1] == "resolved"
    over = [delivery.body for key, delivery in watched.log.deliveries.items() if key not in told]
    assert {(body["status"], body["reason"]) for body in over} == {("resolved", "the run has finished")}
    assert not watched.log.open_alerts(1)


def test_a_run_read_after_its_end_has_its_alerts_on_record_but_pages_nobody() -> None:
    watched = Watched()
    for step in range(30):
        counts = finished((step - 1, None, 1)) if step else []
        watched.log.receive(report(step, health="corrupt", finished=counts), at=10.0 * step)
    watched.hear(finish(29), at=300.0)
    assert ("corrupt_logprobs", "firing", 2) in watched.log.told()
    assert {delivery.told_state for delivery in watched.log.deliveries.values()} == {AlertState.RESOLVED}


def test_a_backlog_of_many_pages_closes_in_order_and_nothing_for_want_of_patience() -> None:
    watched = Watched()
    for step in range(40):
        for chunk in range(30):
            counts = finished((step - 1, None, 30)) if step and not chunk else []
            watched.log.receive(report(step, chunk=chunk, finished=counts), at=0.01 * (30 * step + chunk))
    watched.tick(5000.0)
    watched.tick(5100.0)
    rows = sorted(watched.log.rows.values(), key=lambda row: row.ordinal)
    assert [row.key.step for row in rows] == list(range(40))
    assert all(row.complete and row.n_sequences == 240 and not row.revised for row in rows)


def test_the_trainers_policy_becomes_the_runs_unless_a_person_set_one() -> None:
    watched = Watched()
    start = wire.Start(**ORIGIN, owner="me", tags=["dapo"], policy=preset("geo_mask").spec(), mode="enforce")
    watched.hear(start, at=0.0)
    assert watched.log.versions[-1].author == "trainer"
    assert (watched.log.stored_run.owner, watched.log.stored_run.mode) == ("me", "enforce")
    watched.log.versions.append(
        PolicyVersion(policy=preset("trm"), shadows=(), author="ada", reason="too loose", created_at=5.0)
    )
    watched.hear(replace_launch(start), at=10.0)
    assert watched.log.versions[-1].author == "ada"


def replace_launch(start: wire.Start) -> wire.Start:
    """Return the start of another launch."""
    return wire.Start(**{**{name: getattr(start, name) for name in start.__struct_fields__}, "launch": "launch-2"})


def test_a_policy_that_cannot_be_read_is_refused_and_said() -> None:
    watched = Watched()
    watched.hear(wire.Start(**ORIGIN, policy={"name": "mine", "criteria": []}), at=0.0)
    assert not watched.log.versions
    assert "criteria" in watched.log.events[0].data["refused"]


def test_bits_that_the_replay_does_not_give_are_counted_under_equal_semantics_only() -> None:
    wrong = wire.pack_bits([False] * 8)
    for semantics, expected in ((wire.SEMANTICS_VERSION, 8), (99, 0)):
        watched = Watched()
        watched.hear(report(0, accepted=wrong, semantics=semantics), finish(0), at=0.0)
        (row,) = watched.log.rows.values()
        assert (row.mismatches, row.signals["mask_rate"]) == (expected, 1.0)
        assert watched.log.decisions[row.key, preset("trm").hash].counts == {"accepted": 0, "disagreement": 8}


def test_a_policy_nobody_knows_is_not_replayed_but_counted() -> None:
    watched = Watched()
    watched.hear(report(0, policy=preset("trm", delta=0.007)), finish(0), at=0.0)
    (row,) = watched.log.rows.values()
    assert row.mismatches == 0
    assert watched.counted.passes[-1].unreplayed_reports == 1


def test_shadows_are_decided_and_recorded() -> None:
    watched = Watched()
    watched.hear(report(0), finish(0), at=0.0)
    roles = {decision.policy_name: decision.role for decision in watched.log.decisions.values()}
    assert roles == {
        "trm": Role.ACTIVE,
        "trm_max": Role.SHADOW,
        "geo_mask": Role.SHADOW,
        "token_veto": Role.SHADOW,
    }
    assert set(watched.view.mask_rates) == set(roles)


def test_an_alert_of_a_rule_that_is_gone_ends() -> None:
    watched = Watched()
    train(watched, range(5), health="corrupt")
    rules = tuple(rule for rule in VIGIL.rules() if rule.name != "corrupt_logprobs")
    fresh = Watched(vigil=replace(VIGIL, rules=lambda: rules))
    fresh.log = watched.log
    fresh.restart()
    fresh.tick(60.0)
    assert [alert.state.value for alert in watched.log.alerts.values()] == ["resolved"]
    assert [delivery.body["status"] for delivery in watched.log.deliveries.values()] == ["firing", "resolved"]


def test_a_newer_attempt_takes_over_and_the_older_ones_tail_is_kept_apart() -> None:
    watched = Watched()
    train(watched, range(10))
    again = {"attempt": "b", "launch": "launch-2"}
    watched.hear(report(5, **again), at=100.0)
    watched.hear(report(6, **again, finished=finished((5, None, 1))), at=110.0)
    watched.tick(171.0)
    assert watched.log.rows[BatchKey(2, 5, None)].ordinal == 10
    tail = watched.log.rows[BatchKey(1, 9, None)]
    assert (tail.ordinal, tail.revised) == (11, True)
    assert len(watched.log.rows) == 12
