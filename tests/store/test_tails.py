"""What is handed over in memory: all of a run or nothing, in order, and no more than there is room for."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.store.builders import NOW, append, intake, report, report_intake, start_intake
from trmon.app.reports.preparation import prepare
from trmon.domain.identity import RunKey
from trmon.domain.intake import StoredReport
from trmon.domain.policies.version import DEFAULT_POLICY
from trmon.store import Store
from trmon.store.tails import Tails
from trmon_client.core import wire
from trmon_client.core.acceptance import Policy, preset
from trmon_client.core.columns import Columns


@pytest.fixture
def tails() -> Tails[str]:
    """Tails with room for three messages."""
    return Tails(max_bytes=3)


def ask(tails: Tails[str], run_id: int, id_: int, *, limit: int = 10) -> list[str] | None:
    """Return what is here, or None where the tables are asked; they hold more than is read of them at once."""
    asked: list[str] = []

    def tables() -> list[str]:
        asked.extend("stored" for _ in range(limit))
        return asked

    found = tails.read(run_id, id_, limit=limit, tables=tables)
    return None if asked else found


def test_a_run_of_which_nothing_came_is_asked_of_the_tables(tails: Tails[str]) -> None:
    assert ask(tails, 1, 0) is None


def test_what_came_before_the_first_message_is_asked_of_the_tables_and_the_rest_is_here(tails: Tails[str]) -> None:
    tails.add(1, 5, "five", n_bytes=1)
    tails.add(2, 6, "other", n_bytes=1)
    tails.add(1, 7, "seven", n_bytes=1)
    assert ask(tails, 1, 4) == ["five", "seven"]
    assert ask(tails, 1, 5) == ["seven"]
    assert ask(tails, 1, 7) == []
    tails.add(1, 9, "nine", n_bytes=1)
    assert ask(tails, 1, 7) == ["nine"]
    assert ask(tails, 1, 3) is None


def test_what_was_read_is_dropped_and_asked_of_the_tables_by_who_goes_back(tails: Tails[str]) -> None:
    for id_ in (1, 2):
        tails.add(1, id_, str(id_), n_bytes=1)
    assert ask(tails, 1, 1) == ["2"]
    assert ask(tails, 1, 0) is None


def test_pages_end_at_the_limit(tails: Tails[str]) -> None:
    for id_ in (1, 2, 3):
        tails.add(1, id_, str(id_), n_bytes=1)
    assert ask(tails, 1, 0, limit=2) == ["1", "2"]
    assert ask(tails, 1, 2, limit=2) == ["3"]


def test_without_room_the_oldest_of_all_runs_is_left_to_the_tables(tails: Tails[str]) -> None:
    tails.add(1, 1, "1", n_bytes=1)
    tails.add(2, 2, "2", n_bytes=2)
    tails.add(2, 3, "3", n_bytes=1)
    assert ask(tails, 1, 1) == []
    assert ask(tails, 1, 0) is None
    assert ask(tails, 2, 1) == ["2", "3"]


def test_room_is_given_back_by_reading(tails: Tails[str]) -> None:
    for id_ in range(1, 100):
        tails.add(1, id_, str(id_), n_bytes=3)
        assert ask(tails, 1, id_ - 1) == [str(id_)]
        assert ask(tails, 1, id_) == []


def test_a_message_larger_than_the_room_is_left_to_the_tables(tails: Tails[str]) -> None:
    tails.add(1, 1, "large", n_bytes=4)
    assert ask(tails, 1, 0) is None


def test_after_a_rollback_everything_is_asked_of_the_tables(tails: Tails[str]) -> None:
    tails.add(1, 1, "1", n_bytes=1)
    tails.forget()
    assert ask(tails, 1, 0) is None
    tails.add(1, 2, "2", n_bytes=1)
    assert ask(tails, 1, 1) == ["2"]


def test_once_the_tables_are_read_to_their_end_only_what_comes_is_waited_for(tails: Tails[str]) -> None:
    assert tails.read(1, 3, limit=10, tables=lambda: ["four", "five"]) == ["four", "five"]
    assert ask(tails, 1, 5) == []
    tails.add(1, 9, "nine", n_bytes=1)
    assert ask(tails, 1, 5) == ["nine"]


def test_what_comes_while_the_tables_are_read_is_not_said_twice(tails: Tails[str]) -> None:
    def tables() -> list[str]:
        tails.add(1, 4, "four", n_bytes=1)
        tails.add(1, 5, "five", n_bytes=1)
        return ["four"]

    assert tails.read(1, 3, limit=10, tables=tables) == ["four"]
    assert ask(tails, 1, 4) == ["five"]


def test_tables_that_cannot_be_read_are_asked_again(tails: Tails[str]) -> None:
    with pytest.raises(ZeroDivisionError):
        tails.read(1, 3, limit=10, tables=lambda: [str(1 // 0)])
    assert ask(tails, 1, 3) is None


def test_notices_are_handed_over_as_the_tables_hold_them(store: Store) -> None:
    scalars = wire.Scalars(attempt="a", launch="launch-1", sequence=1, step=3, values={"lr": 1e-6})
    pause = wire.Pause(attempt="a", launch="launch-1", sequence=2, reason="evaluation")
    [first, *_] = append(store, start_intake(config={"lr": [1, 2]}), intake(scalars), intake(pause))
    handed = store.reports.newest_notices(first.run_id, 0, limit=10)
    assert handed == store.reports.notices_after(first.run_id, 0, limit=10)
    assert len(handed) == 3


def test_what_is_handed_over_is_what_the_tables_hold(store: Store) -> None:
    key = RunKey("math", "grpo")
    whole = [prepare(report(step=step, seed=step, scalars={"lr": 1}), key, policy_of=_default) for step in range(4)]
    taken = [replace(made, columns=None) if i % 2 else made for i, made in enumerate(whole)]
    receipts = append(store, *taken, *taken[:2])
    handed = store.reports.newest(receipts[0].run_id, 0, limit=10)
    read = store.reports.after(receipts[0].run_id, 0, limit=10)
    assert len(handed) == len(read) == 4
    for one, other in zip(handed, read, strict=True):
        assert replace(one, columns=_left_out) == replace(other, columns=_left_out)
        _assert_same_columns(one, other)


def test_what_a_failed_write_has_undone_is_not_handed_over(store: Store) -> None:
    [receipt] = append(store, report_intake(step=0))

    def fail(_: object) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        store.writer.submit(fail).result(30)
    append(store, report_intake(step=1), now=NOW + 1)
    found = store.reports.newest(receipt.run_id, 0, limit=10)
    assert [stored.key.batch.step for stored in found] == [0, 1]


def _assert_same_columns(one: StoredReport, other: StoredReport) -> None:
    mine, theirs = one.columns(), other.columns()
    assert set(mine) == set(theirs)
    for name in mine:
        np.testing.assert_array_equal(mine[name], theirs[name])
        assert mine[name].dtype == theirs[name].dtype
    assert mine.histograms.keys() == theirs.histograms.keys()
    assert all(np.array_equal(mine.histograms[pair], theirs.histograms[pair]) for pair in mine.histograms)


def _default(_: RunKey) -> Policy:
    return preset(DEFAULT_POLICY)


def _left_out() -> Columns:
    """Stand for columns where all but them is compared."""
    return Columns({})
