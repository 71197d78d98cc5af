"""Summaries in the background: what is made when, what is lost, and what a fleet shows after a restart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from tests.store.builders import NOW, append, batch, batch_key, commit, start_intake
from trmon.domain.access import EVERYTHING
from trmon.domain.health.run_summary import OutdatedSummary, RunSummary, SummaryBasis
from trmon.domain.ownership import Fences, Ownership, slot_of
from trmon.domain.pipeline.run_update import Frontier
from trmon.domain.runs.run import RunState
from trmon.fleet.summaries import AGAIN_SECONDS, LIVE_SECONDS, RunSummaries, SummaryUpdater, in_order
from trmon.store import Store


@dataclass
class Clocks:
    """The time of day, which may be set, and a clock that only goes on."""

    wall: float = NOW
    elapsed: float = 100.0


@dataclass
class LosingSink:
    """Stores no summary."""

    lost: list[int] = field(default_factory=list)

    def write(self, summaries: Sequence[RunSummary]) -> None:
        self.lost += [summary.run_id for summary in summaries]


@dataclass
class SlotOwner(Ownership):
    """Owns the slots of some runs."""

    run_ids: Sequence[int]

    def fences(self) -> Fences:
        return {slot_of(run_id): 1 for run_id in self.run_ids}


@pytest.fixture
def clocks() -> Clocks:
    """Clocks that stand still until a test moves them."""
    return Clocks()


def updater_of(store: Store, clocks: Clocks, **changed: object) -> SummaryUpdater:
    given: dict[str, object] = {"sink": store.summaries, "ownership": Ownership()} | changed
    return SummaryUpdater(
        store,
        given["sink"],  # type: ignore[arg-type]
        ownership=given["ownership"],  # type: ignore[arg-type]
        clock=lambda: clocks.wall,
        monotonic=lambda: clocks.elapsed,
    )


def a_run(store: Store, name: str = "grpo") -> int:
    [receipt] = append(store, start_intake(run=name))
    fold(store, receipt.run_id, step=0)
    return receipt.run_id


def fold(store: Store, run_id: int, *, step: int, state: RunState | None = None) -> None:
    """Close a step of a run."""
    run = store.runs.by_id(run_id)
    [attempt] = store.runs.attempts(run.id)
    row = batch(batch_key(attempt.id, step), run_id=run_id, ordinal=step + 1)
    frontier = Frontier(report_id=step + 1)
    fields = {} if state is None else {"state": state}
    commit(store, run_id, batches=(row,), last_step=step, attempt_id=attempt.id, frontier=frontier, **fields)


def poll(store: Store, updater: SummaryUpdater) -> None:
    """Poll, and wait until what was made is stored."""
    updater.poll()
    store.writer.submit(lambda _: None).result()


def steps(store: Store, *run_ids: int) -> list[int | None]:
    found = store.summaries.of(run_ids)
    return [found[run_id].reward.last_step if run_id in found else None for run_id in run_ids]


def test_a_live_run_is_summarized_at_a_bounded_rate_and_at_its_end(store: Store, clocks: Clocks) -> None:
    run_id, updater = a_run(store), updater_of(store, clocks)
    poll(store, updater)
    assert steps(store, run_id) == [0]
    fold(store, run_id, step=1)
    poll(store, updater)
    assert steps(store, run_id) == [0]
    clocks.elapsed += LIVE_SECONDS
    poll(store, updater)
    assert steps(store, run_id) == [1]
    fold(store, run_id, step=2, state=RunState.FINISHED)
    poll(store, updater)
    assert steps(store, run_id) == [2]


def test_a_summary_that_was_not_stored_is_made_again(store: Store, clocks: Clocks) -> None:
    run_id, sink = a_run(store), LosingSink()
    updater = updater_of(store, clocks, sink=sink)
    for elapsed, lost in ((0.0, 1), (1.0, 1), (AGAIN_SECONDS, 2)):
        clocks.elapsed += elapsed
        updater.poll()
        assert sink.lost == [run_id] * lost


def test_a_clock_that_is_set_back_delays_nothing(store: Store, clocks: Clocks) -> None:
    run_id, updater = a_run(store), updater_of(store, clocks)
    poll(store, updater)
    clocks.wall -= 86_400.0
    fold(store, run_id, step=1)
    clocks.elapsed += LIVE_SECONDS
    poll(store, updater)
    assert steps(store, run_id) == [1]


def test_another_worker_goes_on_where_one_stopped(store: Store, clocks: Clocks) -> None:
    run_id, other_id = a_run(store), a_run(store, "other")
    poll(store, updater_of(store, clocks, ownership=SlotOwner([run_id])))
    assert steps(store, run_id, other_id) == [0, None]
    fold(store, run_id, step=1)
    poll(store, updater_of(store, clocks, ownership=SlotOwner([run_id, other_id])))
    poll(store, updater_of(store, clocks, ownership=SlotOwner([run_id, other_id])))
    assert steps(store, run_id, other_id) == [1, 0]


def test_a_run_without_a_closed_step_does_not_stop_those_behind_it(store: Store, clocks: Clocks) -> None:
    [receipt] = append(store, start_intake(run="open"))
    commit(store, receipt.run_id, last_step=0)
    run_id, updater = a_run(store), updater_of(store, clocks)
    poll(store, updater)
    poll(store, updater)
    assert steps(store, receipt.run_id, run_id) == [None, 0]


def test_the_first_answer_after_a_restart_shows_stored_summaries(store: Store, clocks: Clocks) -> None:
    runs = [a_run(store, f"run-{number}") for number in range(4)]
    updater = updater_of(store, clocks)
    for _ in runs:
        poll(store, updater)
    fold(store, runs[0], step=1)
    found = [store.runs.by_id(run_id) for run_id in runs]
    shown = RunSummaries(store).of(found, access=EVERYTHING, now=NOW + 1.0, budget_seconds=0.0)
    assert [shown[run_id].reward.last_step for run_id in runs] == [0, 0, 0, 0]
    assert (found[0].last_step, shown[runs[0]].basis.step) == (1, 0)


def test_a_request_that_has_used_its_time_up_makes_one_summary(store: Store) -> None:
    runs = [store.runs.by_id(a_run(store, f"run-{number}")) for number in range(3)]
    summaries = RunSummaries(store)
    n_known = [len(summaries.of(runs, access=EVERYTHING, now=NOW, budget_seconds=-1.0)) for _ in range(4)]
    assert n_known == [1, 2, 3, 3]


def test_a_view_takes_a_newer_stored_summary_and_makes_an_outdated_one_anew(store: Store, clocks: Clocks) -> None:
    run_id, updater, summaries = a_run(store), updater_of(store, clocks), RunSummaries(store)

    def shown(now: float) -> int:
        run = store.runs.by_id(run_id)
        return summaries.of([run], access=EVERYTHING, now=now)[run_id].reward.last_step

    poll(store, updater)
    assert shown(NOW) == 0
    fold(store, run_id, step=1)
    assert shown(NOW + 1.0) == 0
    clocks.elapsed += LIVE_SECONDS
    poll(store, updater)
    assert shown(NOW + 1.0) == 1
    fold(store, run_id, step=2)
    assert shown(NOW + 100.0) == 2
    fold(store, run_id, step=3)
    assert shown(NOW - 100.0) == 3  # a clock that was set back


def test_live_runs_go_before_the_backlog_which_does_not_wait_for_ever() -> None:
    basis = SummaryBasis(attempt_id=1, step=0, report_id=1, notice_id=0)

    def one(run_id: int, *, is_live: bool, made_at: float | None = None) -> OutdatedSummary:
        return OutdatedSummary(run_id=run_id, basis=basis, is_live=is_live, made_at=made_at)

    live = [one(number, is_live=True, made_at=50.0 - number) for number in range(1, 5)] + [one(9, is_live=True)]
    backlog = [one(number, is_live=False) for number in (21, 22, 23)]
    assert [outdated.run_id for outdated in in_order([*backlog, *live])] == [9, 4, 3, 23, 2, 1, 22, 21]
    assert in_order([]) == []
