"""A run of MLflow's SQLite store: `mlflow.db` if it has only one, else `mlflow.db/NAME` or `mlflow.db/ID`."""

from __future__ import annotations

import math
import operator
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from trmon.domain.analysis.logged_steps import LogDefect
from trmon.domain.errors import InvalidInput, NotReady
from trmon.logs.log_format import LogFormat, LoggedValue, LogItem, rows_of_values

FILE_START = b"SQLite format 3\x00"
LARGEST = 1.7976931348623157e308
"""MLflow stores infinity as the largest number of a float64."""
LOCK_TIMEOUT_SECONDS = 10.0
SHOWN_RUNS = 10
_COPY = """CREATE TEMP TABLE logged AS
    SELECT key, value, timestamp, step, is_nan FROM metrics WHERE run_uuid = ? ORDER BY rowid"""


@dataclass(frozen=True, slots=True)
class StoredRun:
    """A run of the store, by its id and its name."""

    run_id: str
    name: str
    is_active: bool


def _read(path: Path) -> Iterator[LogItem]:
    with opened_store(path, "MLflow") as database:
        rows = database.execute("SELECT run_uuid, name, lifecycle_stage FROM runs ORDER BY start_time")
        run = chosen_run([StoredRun(run_id, name or "", stage == "active") for run_id, name, stage in rows], path)
        # A reader keeps MLflow from committing, so the store is read at once, and the rows from the copy.
        database.execute(_COPY, [run.run_id])
        yield from rows_of_values(_values(database), writer=run.run_id)


@contextmanager
def opened_store(path: Path, tracker: str) -> Iterator[sqlite3.Connection]:
    """Open the store of a run for reading. Errors: InvalidInput, NotReady while another process has locked it."""
    store = store_of(path)
    uri = f"{store.resolve().as_uri()}?mode=ro"
    try:
        with closing(sqlite3.connect(uri, uri=True, timeout=LOCK_TIMEOUT_SECONDS)) as database:
            yield database
    except sqlite3.Error as error:
        if getattr(error, "sqlite_errorcode", 0) & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            raise NotReady(f"{store} is locked by another process; try again") from error
        raise InvalidInput(str(store), f"cannot be read as a store of {tracker}: {error}") from error


def chosen_run(runs: list[StoredRun], path: Path) -> StoredRun:
    """Return the run that a path names; by name, only runs that were not deleted. Errors: InvalidInput."""
    store = store_of(path)
    active = [run for run in runs if run.is_active]
    found = active
    if store != path:
        found = [run for run in runs if run.run_id == path.name] or [run for run in active if run.name == path.name]
    if len(found) == 1:
        return found[0]
    if found:
        active = found
    listed = "".join(f"\n  {store}/{run.run_id}  {run.name}" for run in active[:SHOWN_RUNS])
    more = f"\n  and {len(active) - SHOWN_RUNS} more" if len(active) > SHOWN_RUNS else ""
    problem = f"{len(found)} runs; name one" if found else f"no run {path.name!r}" if store != path else "no run"
    raise InvalidInput(str(store), f"has {problem}{':' if listed else ''}{listed}{more}")


def _values(database: sqlite3.Connection) -> Iterator[LoggedValue | LogDefect]:
    for metric in database.execute("SELECT * FROM logged ORDER BY rowid"):
        try:
            name, value, at_ms, step, is_nan = metric
            number = float(math.nan if is_nan else unpacked(value))
            yield LoggedValue(str(name), number, step=operator.index(step), seconds=at_ms / 1000.0)
        except TypeError:
            # SQLite checks no types, and a damaged file may have any.
            yield LogDefect(0, f"has a metric whose values have other types than MLflow's; left out: {metric}")


def unpacked(value: float) -> float:
    """Return a value as it was logged: MLflow stores infinity as the largest number."""
    return math.copysign(math.inf, value) if abs(value) == LARGEST else value


def files_of_store(path: Path) -> list[Path]:
    """Return the file of a store, and that of its changes."""
    store = store_of(path)
    log = store.with_name(f"{store.name}-wal")
    return [store, *([log] if log.exists() else [])]


def store_of(path: Path) -> Path:
    """Return the file of a run in a store, named like a file in a folder; any other path unchanged."""
    store = path.parent
    if not store.is_file():
        return path
    with store.open("rb") as file:
        return store if file.read(len(FILE_START)) == FILE_START else path


MLFLOW = LogFormat(
    name="mlflow",
    description="a run of MLflow's SQLite store: mlflow.db, or mlflow.db/NAME if it has several",
    matches=lambda sample: sample.data.startswith(FILE_START),
    read=_read,
    files=files_of_store,
    has_lines=False,
)
