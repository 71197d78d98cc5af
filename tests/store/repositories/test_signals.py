"""Batches and the history of their signals, which is that of the committed values however they are stored."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from msgspec import structs
from sqlalchemy import update

from tests.store.builders import (
    CODE,
    NOW,
    append,
    batch,
    batch_key,
    begin,
    commit,
    execute,
    paged,
    report_intake,
    start_intake,
)
from trmon.domain.access import EVERYTHING
from trmon.domain.batches.batch import BatchRow, QuarantinePart
from trmon.store import Store
from trmon.store.rows.signal_chunks import CHUNK_BATCHES
from trmon.store.schema import tables
from trmon_client.api.signals import SignalSeries


@pytest.fixture
def stepped(store: Store) -> int:
    """A run with steps 0 to 4, each with the updates None and 0."""
    [run_id] = begin(store, "math/grpo")
    keys = [batch_key(1, step, update) for step in range(5) for update in (None, 0)]
    commit(store, run_id, batches=tuple(batch(key, run_id=run_id, ordinal=i + 1) for i, key in enumerate(keys)))
    return run_id


def test_batches_are_listed_newest_first_in_pages_and_filtered(store: Store, stepped: int) -> None:
    assert [row.ordinal for row in paged(store.batches.list, stepped, limit=7)] == list(range(10, 0, -1))
    found = store.batches.list(stepped, access=EVERYTHING, attempt_id=1, step=3)
    assert [(row.key.step, row.key.update) for row in found.items] == [(3, 0), (3, None)]
    assert store.batches.list(stepped, access=EVERYTHING, attempt_id=2).items == ()


def test_batches_of_another_project_are_not_seen(store: Store, stepped: int) -> None:
    assert store.batches.list(stepped, access=CODE).items == ()
    assert store.batches.decisions(batch_key(1, 3), access=CODE) == ()


def test_gauge_rows_are_listed_one_per_step_in_pages(store: Store, stepped: int) -> None:
    append(store, start_intake(attempt="b", launch="launch-2"))
    later = [batch_key(2, step, update) for step in (3, 4) for update in (0, 1)]
    commit(store, stepped, batches=tuple(batch(key, run_id=stepped, ordinal=11 + i) for i, key in enumerate(later)))
    pages = [store.batches.gauge_keys(stepped, access=EVERYTHING, limit=3)]
    while pages[-1]:
        pages.append(store.batches.gauge_keys(stepped, access=EVERYTHING, limit=3, before=pages[-1][-1]))
    whole = [batch_key(1, step) for step in range(4, -1, -1)]
    assert [key for page in pages for key in page] == [batch_key(2, 4, 1), batch_key(2, 3, 1), *whole]
    assert [len(page) for page in pages] == [3, 3, 1, 0]


def test_gauge_rows_are_filtered_by_range_and_attempt(store: Store, stepped: int) -> None:
    def steps(**wanted: int) -> list[int]:
        return [key.step for key in store.batches.gauge_keys(stepped, access=EVERYTHING, **wanted)]

    assert steps(from_step=1, to_step=3) == [3, 2, 1]
    assert steps(attempt_id=2) == []
    assert store.batches.gauge_keys(stepped, access=CODE) == ()


def write(store: Store, run_id: int, steps: range, *, attempt_id: int = 1, first_ordinal: int = 1) -> list[BatchRow]:
    """Write one batch per step in passes of 100; the signal kl is the step, the scalar lr its negative."""
    rows = [
        batch(
            batch_key(attempt_id, step),
            run_id=run_id,
            ordinal=first_ordinal + i,
            signals={"kl": float(step), "nan": math.nan},
            scalars={"lr": -float(step)},
        )
        for i, step in enumerate(steps)
    ]
    for first in range(0, len(rows), 100):
        commit(store, run_id, batches=tuple(rows[first : first + 100]))
    return rows


@pytest.mark.parametrize("damaged", [b"", b"\0" * 7, b"\0" * 8])
def test_a_damaged_row_has_no_values_in_history(store: Store, run_id: int, damaged: bytes) -> None:
    write(store, run_id, range(40))
    table = tables.batch
    execute(store, update(table).where(table.c.step == 7).values(signals=damaged))
    write(store, run_id, range(40, CHUNK_BATCHES), first_ordinal=41)
    found = last(series(store, run_id, "kl"), "kl")
    assert math.isnan(found[7])
    assert found[:7] + found[8:] == [float(step) for step in range(CHUNK_BATCHES) if step != 7]
    [row] = store.run_log.batches_after(run_id, 7, limit=1)
    assert [entry.part for entry in row.quarantined] == [QuarantinePart.ROW]
    assert row.scalars == {}


def series(store: Store, run_id: int, *names: str, **options: Any) -> SignalSeries:
    return store.signals.series(run_id, names=names, **{"access": EVERYTHING} | options)


def last(found: SignalSeries, name: str) -> list[float]:
    return found.bands[name].last.tolist()


@pytest.mark.parametrize("n", [1, CHUNK_BATCHES, 3 * CHUNK_BATCHES + 7])
def test_each_batch_is_a_point_if_the_points_suffice(store: Store, run_id: int, n: int) -> None:
    write(store, run_id, range(n))
    found = series(store, run_id, "kl", "lr", points=n)
    assert found.exact
    assert found.step.tolist() == last(found, "kl") == list(range(n))
    assert last(found, "lr") == [-step for step in range(n)]
    assert found.closed_at.tolist() == [NOW + step + 1 for step in range(n)]
    assert set(found.update) == {-1}
    assert set(found.count) == {1}


def test_batches_are_aggregated_if_they_outnumber_the_points(store: Store, run_id: int) -> None:
    write(store, run_id, range(1000))
    found = series(store, run_id, "kl", points=10)
    band = found.bands["kl"]
    assert not found.exact
    assert found.count.tolist() == [100] * 10
    assert found.step.tolist() == band.max.tolist() == band.last.tolist() == list(range(99, 1000, 100))
    assert band.min.tolist() == list(range(0, 1000, 100))
    assert band.mean.tolist() == [first + 49.5 for first in range(0, 1000, 100)]


def test_a_range_of_steps_includes_both_ends(store: Store, run_id: int) -> None:
    write(store, run_id, range(600))
    assert series(store, run_id, "kl", from_step=250, to_step=260).step.tolist() == list(range(250, 261))
    assert series(store, run_id, "kl", from_step=590).step.tolist() == list(range(590, 600))
    assert series(store, run_id, "kl", from_step=601).step.tolist() == []


def test_history_shows_the_revised_batch(store: Store, run_id: int) -> None:
    rows = write(store, run_id, range(CHUNK_BATCHES + 20))
    revised = tuple(
        structs.replace(rows[i], revised=True, signals={"kl": -1.0, "late": 5.0}) for i in (3, 7, CHUNK_BATCHES + 2)
    )
    commit(store, run_id, batches=revised)
    found = series(store, run_id, "kl", "late")
    changed = [step for step, value in zip(found.step.tolist(), last(found, "kl"), strict=True) if value == -1.0]
    assert changed == [3, 7, CHUNK_BATCHES + 2]
    assert np.flatnonzero(found.bands["late"].last == 5.0).tolist() == changed


def test_a_signal_is_nan_before_its_first_value(store: Store, run_id: int) -> None:
    rows = write(store, run_id, range(CHUNK_BATCHES))
    later = structs.replace(rows[-1], key=batch_key(1, 999), ordinal=CHUNK_BATCHES + 1, signals={"new": 1.0})
    commit(store, run_id, batches=(later,))
    found = series(store, run_id, "new", "nobody")
    assert np.isnan(found.bands["new"].last).tolist() == [True] * CHUNK_BATCHES + [False]
    assert np.isnan(found.bands["nobody"].last).all()


def test_the_range_and_mean_of_a_point_ignore_nan_and_are_nan_without_a_value(store: Store, run_id: int) -> None:
    values = [1.0, math.nan, 3.0, math.nan, math.nan, math.inf]
    rows = [
        batch(batch_key(1, i), run_id=run_id, ordinal=i + 1, signals={"x": value}) for i, value in enumerate(values)
    ]
    commit(store, run_id, batches=tuple(rows))
    band = series(store, run_id, "x", points=3).bands["x"]
    np.testing.assert_array_equal(band.min, [1.0, 3.0, math.inf])
    np.testing.assert_array_equal(band.mean, [1.0, 3.0, math.inf])
    np.testing.assert_array_equal(band.last, [math.nan, math.nan, math.inf])
    np.testing.assert_array_equal(series(store, run_id, "x", points=2).bands["x"].max, [3.0, math.inf])
    unknown = series(store, run_id, "nobody", points=2).bands["nobody"]
    for column in (unknown.min, unknown.max, unknown.mean, unknown.last):
        assert np.isnan(column).tolist() == [True, True]


def test_gauges_use_the_rollout_batch_or_else_the_last_update(store: Store, run_id: int) -> None:
    keys = [(0, None), (0, 0), (0, 1), (1, 0), (1, 1), (2, None)]
    rows = [
        batch(batch_key(1, *key), run_id=run_id, ordinal=i + 1, signals={"x": float(i)}) for i, key in enumerate(keys)
    ]
    commit(store, run_id, batches=tuple(rows))
    gauges, everything = series(store, run_id, "x"), series(store, run_id, "x", updates="all")
    assert (gauges.step.tolist(), gauges.update.tolist(), last(gauges, "x")) == ([0, 1, 2], [-1, 1, -1], [0, 4, 5])
    assert last(everything, "x") == [0, 1, 2, 3, 4, 5]


def test_a_restart_from_an_earlier_step_replaces_the_repeated_steps(store: Store, run_id: int) -> None:
    write(store, run_id, range(300))
    append(store, report_intake(step=300))
    [restart] = append(store, report_intake(step=200, launch="launch-2"), now=NOW + 1e6)
    write(store, run_id, range(200, 210), attempt_id=restart.attempt_id, first_ordinal=301)
    whole = series(store, run_id, "kl")
    assert whole.step.tolist() == list(range(210))
    assert whole.attempt_id.tolist() == [1] * 200 + [restart.attempt_id] * 10
    assert len(series(store, run_id, "kl", attempt_id=1).step) == 300


def test_a_second_trainer_is_read_only_on_request(store: Store, run_id: int) -> None:
    write(store, run_id, range(5))
    [second] = append(store, report_intake(launch="launch-2"))
    write(store, run_id, range(3), attempt_id=second.attempt_id, first_ordinal=6)
    assert series(store, run_id, "kl").step.tolist() == list(range(5))
    assert series(store, run_id, "kl", attempt_id=second.attempt_id).step.tolist() == list(range(3))


def test_a_run_without_batches_has_no_points(store: Store, run_id: int) -> None:
    found = series(store, run_id, "kl")
    assert found.exact
    assert len(found.step) == len(found.bands["kl"].mean) == 0
    assert store.signals.names(run_id, access=EVERYTHING) == []


def test_a_name_that_only_old_batches_have_is_recorded(store: Store, run_id: int) -> None:
    rows = write(store, run_id, range(CHUNK_BATCHES + 2))
    name = next(iter(rows[0].signals))
    assert store.signals.recorded_names(run_id, {name, "unheard_of"}, access=EVERYTHING) == {name}
    assert store.signals.names(run_id, access=EVERYTHING) == ["kl", "lr", "nan"]
    assert store.signals.recorded_names(run_id, access=EVERYTHING) == {"kl", "lr", "nan"}
    assert store.signals.recorded_names(run_id, access=CODE) == set()


def test_history_of_another_project_is_not_found(store: Store, run_id: int) -> None:
    write(store, run_id, range(300))
    assert len(series(store, run_id, "kl", access=CODE).step) == 0
    assert len(series(store, run_id, "kl", access=CODE, attempt_id=1).step) == 0
    assert store.signals.names(run_id, access=CODE) == []
    assert store.signals.recorded_names(run_id, {"kl"}, access=CODE) == set()


def test_the_newest_steps_come_from_the_displayed_attempts(store: Store, run_id: int) -> None:
    write(store, run_id, range(10))
    newer = append(store, start_intake(attempt="b", launch="launch-2"))[0].attempt_id
    write(store, run_id, range(6, 9), attempt_id=newer, first_ordinal=11)
    assert store.signals.newest_steps(run_id, access=EVERYTHING, limit=5) == [8, 7, 6, 5, 4]
    assert store.signals.newest_steps(run_id, access=EVERYTHING, limit=99) == list(range(8, -1, -1))
    assert store.signals.newest_steps(run_id, access=CODE, limit=5) == []
