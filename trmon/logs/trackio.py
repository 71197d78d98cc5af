"""A run of trackio's local database: `PROJECT.db` if it has only one, else `PROJECT.db/NAME` or `PROJECT.db/ID`.

Source: trackio 0.43.0, trackio/sqlite_storage.py (table metrics); older releases have no column run_id.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from trmon.domain.analysis.logged_steps import LogDefect, LogRow
from trmon.logs.json_logs import flat_row, parse_json
from trmon.logs.log_format import LogFormat, LogItem, LogSample
from trmon.logs.mlflow_store import FILE_START, StoredRun, chosen_run, files_of_store, opened_store, store_of

_COLUMNS = "PRAGMA table_info(metrics)"
_OLD = (
    "SELECT run_name, run_name FROM metrics GROUP BY run_name ORDER BY min(id)",
    "SELECT step, timestamp, metrics FROM metrics WHERE run_name = ? ORDER BY id",
)
_NEW = (
    "SELECT run_id, max(run_name) FROM metrics GROUP BY run_id ORDER BY min(id)",
    "SELECT step, timestamp, metrics FROM metrics WHERE run_id = ? ORDER BY id",
)


def _matches(sample: LogSample) -> bool:
    if not sample.data.startswith(FILE_START):
        return False
    try:
        with closing(sqlite3.connect(f"{store_of(sample.path).resolve().as_uri()}?mode=ro", uri=True)) as database:
            return {"run_name", "metrics"} <= _columns(database)
    except sqlite3.Error:
        return False


def _columns(database: sqlite3.Connection) -> set[str]:
    return {str(name) for _, name, *_ in database.execute(_COLUMNS)}


def _read(path: Path) -> Iterator[LogItem]:
    with opened_store(path, "trackio") as database:
        runs_query, rows_query = _NEW if "run_id" in _columns(database) else _OLD
        runs = [StoredRun(str(key), str(name), is_active=True) for key, name in database.execute(runs_query)]
        run = chosen_run(runs, path)
        rows = database.execute(rows_query, [run.run_id]).fetchall()
    for step, timestamp, text in rows:
        try:
            row = parse_json(text)
        except (ValueError, TypeError, RecursionError):
            row = None
        if isinstance(row, dict):
            yield LogRow({"step": step, "timestamp": timestamp} | flat_row(row), writer=run.run_id)
        else:
            yield LogDefect(0, f"has no JSON object of metrics at step {step}; left out")


TRACKIO = LogFormat(
    name="trackio",
    description="a run of trackio's database: PROJECT.db, or PROJECT.db/NAME if it has several",
    matches=_matches,
    read=_read,
    files=files_of_store,
    has_lines=False,
)
