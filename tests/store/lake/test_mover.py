"""Tests the mover: every table of the lake gets the rows of ended attempts, once however often it is repeated."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

from deltalake import DeltaTable

from tests.store.builders import NOW
from tests.store.lake.lake_runs import put_ended_run
from trmon.store import Store
from trmon.store.lake.delta_schema import LAKE_SEQUENCES, LAKE_TABLES
from trmon.store.lake.delta_tables import DeltaTables
from trmon.store.lake.location import LakeLocation


def rows_of_table(folder: Path, name: str) -> list[dict[str, object]]:
    """Return all rows of a table of a lake in a folder; none if it does not exist."""
    if not (folder / name).exists():
        return []
    return list(DeltaTable(str(folder / name)).to_pyarrow_table().to_pylist())


def test_every_table_gets_the_rows_of_ended_attempts_once(store: Store, tmp_path: Path) -> None:
    for name in ("one", "two"):
        put_ended_run(store, name)
    mover = store.lake(str(tmp_path / "lake")).mover
    moved = mover.move_next(now=NOW + 100, after_seconds=50.0)
    assert moved is not None
    assert (moved.id, moved.attempts, moved.reports) == (1, 2, 6)
    assert mover.move_next(now=NOW + 200, after_seconds=50.0) is None
    assert {table.name: len(rows_of_table(tmp_path / "lake", table.name)) for table in LAKE_TABLES} == {
        "reports": 6,
        "sequences": 48,
        "notices": 2,
        "batches": 6,
        "decisions": 6,
        "signal_chunks": 0,
        "chunk_axes": 0,
        "alerts": 2,
        "alert_events": 2,
        "policies": 0,
        "adaptations": 0,
        "notes": 0,
        "attempts": 2,
    }
    [row, *_] = rows_of_table(tmp_path / "lake", "batches")
    assert (row["project"], row["month"], row["run"], row["attempt"]) == ("math", "2027-01", "one", "a")
    assert dict(row["signals"]) == {"total_kl_k3": 0.001}  # type: ignore[call-overload]
    assert math.isnan(dict(row["scalars"])["loss"])  # type: ignore[call-overload]


def test_a_run_that_is_not_idle_for_long_enough_stays(store: Store, tmp_path: Path) -> None:
    put_ended_run(store, "one")
    assert store.lake(str(tmp_path / "lake")).mover.move_next(now=NOW + 49, after_seconds=50.0) is None
    assert not (tmp_path / "lake").exists()


def test_a_table_of_an_older_trmon_gets_the_columns_of_this_one(store: Store, tmp_path: Path) -> None:
    fields = tuple(field for field in LAKE_SEQUENCES.fields if field.name != "total_sum_k3")
    older = replace(LAKE_SEQUENCES, fields=fields)
    DeltaTables(LakeLocation(str(tmp_path / "lake"))).find_or_create(older)
    put_ended_run(store, "one")
    assert store.lake(str(tmp_path / "lake")).mover.move_next(now=NOW + 100, after_seconds=50.0) is not None
    rows = rows_of_table(tmp_path / "lake", "sequences")
    assert len(rows) == 24
    assert all(isinstance(row["total_sum_k3"], float) for row in rows)
