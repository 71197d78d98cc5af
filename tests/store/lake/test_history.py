"""Tests that the repositories answer the same of attempts in the lake as of those in the database."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from deltalake import DeltaTable
from sqlalchemy import update

from tests.store.builders import NOW, append, batch, batch_key, commit, decision, execute, report_intake, start_intake
from tests.store.conftest import BACKENDS, migrated_database
from tests.store.lake.lakes import delete_moved, move_to_lake
from trmon.domain.access import EVERYTHING, Access
from trmon.domain.batches.batch import BatchRow, DecisionRow, PolicyRole, QuarantinePart, quarantined
from trmon.domain.errors import Conflict
from trmon.domain.identity import BatchKey
from trmon.domain.pipeline.publish import Frontier
from trmon.domain.runs.run import RunState
from trmon.store import Store
from trmon.store.database.sqlite import sqlite_file_of
from trmon.store.lake.delta_schema import LAKE_TABLES
from trmon.store.lake.reader import AttemptIndex
from trmon.store.rows.batches import BatchSelection
from trmon.store.rows.signal_chunks import CHUNK_BATCHES
from trmon.store.schema import tables

STEPS = CHUNK_BATCHES + 50
"""A chunk of the columnar history, and rows after it."""
STRANGER = Access(name="stranger", scopes=frozenset(), project="other")
Read = Callable[[Store, int, list[int]], Any]


@dataclass(frozen=True)
class Place:
    """A database with a run of two attempts, its lake, and what each read returned before the run moved."""

    url: str
    lake_url: str
    run: tuple[int, list[int]]
    before: dict[str, str]

    def open(self) -> Store:
        return Store.open(self.url, lake_url=self.lake_url)


@pytest.fixture(scope="module", params=BACKENDS)
def moved(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """A run whose attempts are in the lake and, until a test deletes them, in the database; the second goes back."""
    folder = tmp_path_factory.mktemp("filled")
    lake_url = str(folder / "lake")
    with migrated_database(request, folder) as url:
        with closing(Store.open(url, lake_url=lake_url)) as store:
            run_id, first = put_attempt(store, "a", steps=range(STEPS), ordinal=1)
            _, second = put_attempt(store, "b", steps=range(200, STEPS + 20), ordinal=1000)
            run = (run_id, [first, second])
            before = answers(store, run)
            move_to_lake(store, lake_url)
        yield Place(url, lake_url, run, before)


@pytest.fixture
def store(moved: Place) -> Iterator[Store]:
    """The database and the lake, with nothing of them in memory."""
    with closing(moved.open()) as opened:
        yield opened


def put_attempt(store: Store, name: str, *, steps: range, ordinal: int) -> tuple[int, int]:
    """Store an attempt of a run with two updates of some steps; return the ids of the run and the attempt."""
    start = {"attempt": name, "launch": f"launch-{name}"}
    [started] = append(store, start_intake(**start))
    reports = append(
        store, *(report_intake(step=step, seed=step % 3, rank=rank, **start) for step in steps for rank in (1, 0))
    )
    run_id, attempt_id = started.run_id, started.attempt_id
    keys = [
        BatchKey(attempt_id, step, update) for step in steps for update in ((None, 0) if step % 7 == 0 else (None,))
    ]
    batches = [_row(key, run_id=run_id, ordinal=ordinal + i) for i, key in enumerate(keys)]
    for first in range(0, len(batches), 32):
        part = batches[first : first + 32]
        commit(
            store,
            run_id,
            frontier=Frontier(report_id=reports[-1].id, notice_id=started.id),
            batches=part,
            decisions=[decision for row in part for decision in _decisions(row.key)],
            state=RunState.FINISHED,
            attempt_id=attempt_id,
            last_step=part[-1].key.step,
        )
    return run_id, attempt_id


def _row(key: BatchKey, *, run_id: int, ordinal: int) -> BatchRow:
    nan, is_odd = float("nan"), key.step % 2 == 1
    damage = [quarantined(QuarantinePart.RULE, "a rule", ValueError("bad"))] if key.step == 5 else []
    return batch(
        key,
        run_id=run_id,
        ordinal=ordinal,
        signals={"total_kl_k3": 0.001 * ordinal, "mask_rate": nan if is_odd else 0.25}
        | ({"ess_seq": 1.0} if is_odd else {}),
        scalars={"loss": nan, "reward_mean": float("inf")} if is_odd else {"mask_rate": 0.5},
        missing_ranks=(3,) if is_odd else (),
    ).with_quarantined(damage)


def _decisions(key: BatchKey) -> list[DecisionRow]:
    rate = float("nan") if key.step == 2 else 0.125
    roles = {"seq-trm": PolicyRole.ACTIVE, "trm": PolicyRole.SHADOW, "strict": PolicyRole.SHADOW}
    return [
        decision(key, policy_hash=f"hash-{name}", policy_name=name, role=role, mask_rate=rate)
        for name, role in roles.items()
    ]


def series(**options: Any) -> Read:
    """Return a read of a series."""
    names = options.pop("names", ("total_kl_k3", "mask_rate", "ess_seq", "loss", "missing"))

    def read(store: Store, run_id: int, attempt_ids: list[int]) -> Any:
        if "attempt" in options:
            options["attempt_id"] = attempt_ids[options.pop("attempt")]
        found = store.signals.series(run_id, names=names, access=EVERYTHING, **options)
        columns = {
            name: getattr(found, name).tolist() for name in ("attempt_id", "step", "update", "closed_at", "count")
        }
        bands = {
            name: [values.tolist() for values in (one.min, one.max, one.mean, one.last)]
            for name, one in found.bands.items()
        }
        return found.exact, columns, repr(bands)

    return read


def _pages(store: Store, run_id: int, *, oldest_first: bool) -> Iterator[Any]:
    after = None
    while True:
        page = store.batches.list(run_id, access=EVERYTHING, after=after, limit=70, oldest_first=oldest_first)
        yield page
        if (after := page.next) is None:
            return


def _gauge_pages(store: Store, run_id: int) -> Iterator[BatchKey]:
    before = None
    while page := store.batches.gauge_keys(run_id, access=EVERYTHING, before=before, limit=90):
        yield from page
        before = page[-1]


def _returned(store: Store, keys: list[BatchKey]) -> Any:
    found = store.batches.returned_decisions(keys, access=EVERYTHING)
    return [found.get(key) for key in keys]


READS: dict[str, Read] = {
    "batches, newest first": lambda store, run_id, _: [*_pages(store, run_id, oldest_first=False)],
    "batches, oldest first": lambda store, run_id, _: [*_pages(store, run_id, oldest_first=True)],
    "batches of a step": lambda store, run_id, _: store.batches.list(run_id, access=EVERYTHING, step=7),
    "batches of an attempt": lambda store, run_id, ids: store.batches.list(
        run_id, access=EVERYTHING, attempt_id=ids[0]
    ),
    "a batch": lambda store, _, ids: store.run_log.batch(batch_key(ids[0], 7, 0)),
    "a row with damage": lambda store, _, ids: store.run_log.batch(batch_key(ids[0], 5)),
    "rows after": lambda store, run_id, _: store.run_log.batches_after(run_id, 100, limit=200),
    "gauge keys": lambda store, run_id, _: [*_gauge_pages(store, run_id)],
    "gauge keys of a range": lambda store, run_id, _: store.batches.gauge_keys(
        run_id, access=EVERYTHING, from_step=3, to_step=14
    ),
    "decisions": lambda store, _, ids: store.batches.decisions(batch_key(ids[0], 2), access=EVERYTHING),
    "returned decisions": lambda store, _, ids: _returned(
        store, [batch_key(id_, step) for step in (2, 9, 1000) for id_ in ids]
    ),
    "reports": lambda store, _, ids: [
        (one.id, one.run_id, one.key, one.received_at, one.accepted, one.n_tokens, one.report, one.columns().pairs)
        for one in store.reports.of_batch(batch_key(ids[0], 9))
    ],
    "names": lambda store, run_id, _: store.signals.names(run_id, access=EVERYTHING),
    "recorded names": lambda store, run_id, _: sorted(
        store.signals.recorded_names(run_id, ["loss", "ess_seq", "nothing"], access=EVERYTHING)
    ),
    "all recorded names": lambda store, run_id, _: sorted(store.signals.recorded_names(run_id, access=EVERYTHING)),
    "newest steps": lambda store, run_id, _: store.signals.newest_steps(run_id, access=EVERYTHING, limit=280),
    "the whole series": series(points=10_000),
    "every update": series(points=10_000, updates="all"),
    "points of a series": series(points=17),
    "a part of a series": series(from_step=20, to_step=30),
    "steps alone": series(names=()),
}


def answers(store: Store, run: tuple[int, list[int]]) -> dict[str, str]:
    """Return what each read returns, as text that tells NaN and infinity."""
    return {what: repr(read(store, *run)) for what, read in READS.items()}


@pytest.fixture
def copied(request: pytest.FixtureRequest, moved: Place, tmp_path: Path) -> Iterator[Store]:
    """A copy of the database, with the same lake."""
    url = f"sqlite:///{tmp_path}/trmon.db"
    if moved.url.startswith("sqlite:"):
        shutil.copy(sqlite_file_of(moved.url), tmp_path / "trmon.db")
    else:
        url = request.getfixturevalue("postgres_server").database(template=moved.url)
    with closing(Store.open(url, lake_url=moved.lake_url)) as opened:
        yield opened


# First: the tests below delete what this one leaves in the database.
@pytest.mark.parametrize("in_database", [0, 1])
def test_a_run_with_an_attempt_in_each_place_reads_whole(copied: Store, moved: Place, in_database: int) -> None:
    is_chosen = tables.attempt.c.id == moved.run[1][in_database]
    execute(copied, update(tables.attempt).where(is_chosen).values(lake_batch_id=None))
    delete_moved(copied)
    assert answers(copied, moved.run) == moved.before


def test_a_run_in_the_lake_reads_as_it_did_in_the_database(store: Store, moved: Place) -> None:
    assert all(len(answer) > 10 for answer in moved.before.values())
    assert answers(store, moved.run) == moved.before
    delete_moved(store)
    assert answers(store, moved.run) == moved.before


def test_a_stranger_sees_nothing_of_a_run_in_the_lake(store: Store, moved: Place) -> None:
    run_id, [attempt_id, _] = moved.run
    key = batch_key(attempt_id, 7)
    assert store.batches.list(run_id, access=STRANGER).items == ()
    assert store.batches.gauge_keys(run_id, access=STRANGER) == ()
    assert store.batches.decisions(key, access=STRANGER) == ()
    assert store.batches.returned_decisions([key], access=STRANGER) == {}
    assert store.signals.names(run_id, access=STRANGER) == []
    assert store.signals.recorded_names(run_id, ["loss"], access=STRANGER) == set()
    assert store.signals.newest_steps(run_id, access=STRANGER, limit=9) == []
    assert len(store.signals.series(run_id, names=["loss"], access=STRANGER).step) == 0


def test_a_project_with_moved_runs_is_not_exported_in_part(store: Store, tmp_path: Path) -> None:
    with pytest.raises(Conflict, match="2 attempts of math were moved to the lake"):
        store.archives.export_project("math", tmp_path / "archive", now=NOW)
    assert not (tmp_path / "archive").exists()


def test_a_report_that_came_after_the_move_is_in_the_lake_and_in_no_batch(store: Store, moved: Place) -> None:
    late = report_intake(step=9, seed=9, chunk=1, attempt="a", launch="launch-a")
    [result] = append(store, late)
    assert result.attempt_id == moved.run[1][0]
    commit(store, moved.run[0], frontier=Frontier(report_id=result.id, notice_id=2))
    move_to_lake(store, moved.lake_url)
    delete_moved(store)
    is_first = ("attempt_id", "=", moved.run[1][0])
    found = DeltaTable(f"{moved.lake_url}/reports").to_pyarrow_table(filters=[is_first])
    assert found.column("chunk").to_pylist().count(1) == 1
    assert answers(store, moved.run) == moved.before


def test_files_that_were_merged_and_removed_are_read_where_they_are_now(store: Store, moved: Place) -> None:
    assert answers(store, moved.run) == moved.before
    for table in LAKE_TABLES:
        if (folder := Path(moved.lake_url) / table.name).exists():
            DeltaTable(str(folder)).optimize.compact(max_concurrent_tasks=1)
            DeltaTable(str(folder)).vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    assert answers(store, moved.run) == moved.before


def test_an_attempt_without_batches_has_no_steps() -> None:
    empty = AttemptIndex.of(steps=np.array([], int), updates=np.array([], int), ordinals=np.array([], int))
    assert empty.newest_steps(from_step=None, to_step=None, limit=10) == []
    assert len(empty.selected(BatchSelection(limit=10))) == 0
