"""Tests the run registry, which creates runs and attempts as messages arrive."""

from __future__ import annotations

from tests.store.builders import NOW, append, beat, notice_intake, paged, report_intake, scalars_intake, start_intake
from trmon.domain.messages import WriteOutcome
from trmon.domain.runs.attempts import Resolution
from trmon.store import Store
from trmon_client.core import wire

LATER = NOW + 3600


def names(store: Store, run_id: int) -> list[str]:
    return [attempt.name for attempt in store.runs.attempts(run_id)]


def test_the_first_message_creates_project_run_and_attempt(store: Store) -> None:
    [receipt] = append(store, start_intake(world_size=4, rank=2, ranks_unverified=True))
    [attempt] = store.runs.attempts(receipt.run_id)
    assert (attempt.name, attempt.ordinal, attempt.world_size, attempt.ranks_unverified) == ("a", 1, 4, True)
    assert attempt.fork_of is None
    [other] = append(store, start_intake(project="code"))
    assert other.run_id != receipt.run_id, "a run of the same name in another project"


def test_two_active_trainers_with_the_same_attempt_are_separated(store: Store) -> None:
    first, second, third, fourth = append(
        store,
        report_intake(step=1, launch="launch-1"),
        report_intake(step=1, launch="launch-2", seed=1),
        report_intake(step=2, launch="launch-1"),
        report_intake(step=2, launch="launch-2", seed=1),
    )
    assert first.attempt_id == third.attempt_id != second.attempt_id == fourth.attempt_id
    fork = store.runs.attempts(first.run_id)[1]
    assert (fork.name, fork.fork_of) == ("a~launch-2", first.attempt_id)
    assert fork.fork_reason is Resolution.TWO_TRAINERS


def test_a_restart_from_an_earlier_step_forks_the_attempt_for_all_ranks(store: Store) -> None:
    old = [report_intake(step=step, rank=rank, world_size=2) for step in (9, 10) for rank in (0, 1)]
    append(store, *old)
    new = [report_intake(step=10, rank=rank, world_size=2, launch="launch-2", seed=1) for rank in (0, 1)]
    zero, one = append(store, *new, now=LATER)
    assert zero.attempt_id == one.attempt_id
    assert store.runs.attempts(zero.run_id)[1].fork_reason is Resolution.WENT_BACK


def test_a_report_from_before_a_fork_is_stored_once(store: Store) -> None:
    [first] = append(store, report_intake(step=0, rank=1, world_size=2))
    early = report_intake(step=1, rank=0, world_size=2, launch="launch-2")
    stored, forked = append(store, early, report_intake(step=1, rank=1, world_size=2, launch="launch-2"))
    assert (stored.attempt_id == first.attempt_id, forked.attempt_id == first.attempt_id) == (True, False)
    other = report_intake(step=1, rank=0, world_size=2, launch="launch-2", seed=1)
    chunk = report_intake(step=1, rank=0, chunk=1, world_size=2, launch="launch-2")
    later = report_intake(step=2, rank=0, world_size=2, launch="launch-2")
    again, conflict, beside, next_one = append(store, early, other, chunk, later)
    assert [again.status, conflict.status] == [WriteOutcome.DUPLICATE, WriteOutcome.CONFLICT]
    assert again.id == conflict.id == stored.id
    assert (beside.attempt_id, next_one.attempt_id) == (first.attempt_id, forked.attempt_id)


def test_a_report_from_before_a_take_over_is_stored_once(store: Store) -> None:
    early = report_intake(step=1, launch="launch-1")
    [stored] = append(store, early)
    append(store, report_intake(step=2, launch="launch-2"), now=LATER)
    [forked] = append(store, report_intake(step=2, launch="launch-1", seed=1), now=LATER)
    assert forked.attempt_id != stored.attempt_id
    [again] = append(store, early, now=LATER)
    assert (again.status, again.id) == (WriteOutcome.DUPLICATE, stored.id)


def test_a_heartbeat_keeps_the_attempt(store: Store) -> None:
    append(store, report_intake(step=10))
    beat(store, at=LATER)
    [receipt] = append(store, report_intake(step=11, launch="launch-2"), now=LATER + 1)
    assert names(store, receipt.run_id) == ["a", "a~launch-2"]


def test_attempts_are_listed_newest_first_in_pages(store: Store) -> None:
    [first, *_] = append(store, *(start_intake(attempt=name) for name in "abcde"))
    assert [attempt.name for attempt in paged(store.runs.list_attempts, first.run_id, limit=2)] == [*"edcba"]


def test_forks_and_claims_survive_a_restart(store: Store, url: str) -> None:
    append(store, report_intake(step=1, launch="launch-1"), report_intake(step=1, launch="launch-2", seed=1))
    store.close()
    again = Store.open(url)
    one, two = append(again, report_intake(step=2, launch="launch-1"), report_intake(step=2, launch="launch-2", seed=1))
    assert one.attempt_id != two.attempt_id
    assert names(again, one.run_id) == ["a", "a~launch-2"]
    again.close()


def test_scalars_of_a_run_without_reports_count_as_its_progress(store: Store) -> None:
    [first] = append(store, scalars_intake(4), now=NOW)
    assert store.runs.by_id(first.run_id).last_report_at == NOW
    append(store, notice_intake(wire.Finish, sequence=9), now=NOW + 1)
    [back] = append(store, scalars_intake(3, launch="launch-2"), now=NOW + 2)
    [on] = append(store, scalars_intake(5, launch="launch-3"), now=NOW + 200)
    assert back.attempt_id != first.attempt_id
    assert on.attempt_id == first.attempt_id
    assert store.runs.by_id(first.run_id).last_report_at == NOW + 200


def test_scalars_beside_reports_do_not_decide_the_attempt(store: Store) -> None:
    [first] = append(store, report_intake(step=10), now=NOW)
    append(store, notice_intake(wire.Finish, sequence=9), now=NOW + 1)
    [after] = append(store, scalars_intake(10, launch="launch-2"), now=NOW + 2)
    assert after.attempt_id == first.attempt_id
