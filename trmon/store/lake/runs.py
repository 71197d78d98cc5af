"""The runs of a lake, read as the service reads them; several databases may share the lake."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import lru_cache

import msgspec
import pyarrow.compute as pc

from trmon.domain.batches.batch import BatchRow
from trmon.domain.errors import InvalidInput, NotReady
from trmon.domain.identity import BatchKey, RunKey
from trmon.domain.messages import AnyReport
from trmon.domain.runs.run import Run, RunState
from trmon.store.archive.runs import WhatIfSteps
from trmon.store.lake.delta_schema import LAKE_ATTEMPTS
from trmon.store.lake.delta_tables import DeltaTables, lake_errors
from trmon.store.lake.history import LakeHistory
from trmon.store.lake.location import lake_location_of
from trmon.store.lake.reader import LakeReader
from trmon.store.lake.row_groups import ColumnFilter
from trmon.store.rows.batches import BatchSelection

PAGE_ROWS = 1024
_ANY_BATCH = 0
"""The lake as it was when this process first read it."""
_KEYS = ("database_id", "run_id", "project", "run", "attempt_id", "lake_batch_id")
_RUN_COLUMNS = ("ordinal", "state", "owner", "tags", "config", "mode", "created_at", "newest_step")


@dataclass(frozen=True, slots=True, kw_only=True)
class LakeRun:
    """Implements RunSource, which documents the methods; `moved_in` has the lake batch of each attempt."""

    url: str
    database_id: str
    run_id: int
    key: RunKey
    moved_in: tuple[tuple[int, int], ...]

    def run(self) -> Run:
        """Return the run. Errors: NotReady for a lake that cannot be read, Damaged for a damaged one, as of all."""
        attempts = _reader_of(self.url).read(
            LAKE_ATTEMPTS,
            ("attempt_id", *_RUN_COLUMNS),
            (
                ColumnFilter.any_of("attempt_id", dict(self.moved_in)),
                ColumnFilter.equal("database_id", self.database_id),
            ),
            lake_batch=_ANY_BATCH,
        )
        newest = max(attempts.to_pylist(), key=lambda row: row["ordinal"])
        return Run(
            id=self.run_id,
            key=self.key,
            state=RunState(newest["state"]),
            owner=newest["owner"],
            tags=tuple(newest["tags"]),
            config=msgspec.json.decode(newest["config"]),
            mode=newest["mode"],
            created_at=newest["created_at"],
            last_report_at=None,
            last_step=newest["newest_step"],
            attempt_id=newest["attempt_id"],
        )

    def rows(self) -> Iterator[BatchRow]:
        history, after = self._history(), 0
        attempt_ids = [attempt_id for attempt_id, _ in self.moved_in]
        while page := history.batches(attempt_ids, BatchSelection(after=after, limit=PAGE_ROWS)):
            yield from page
            after = page[-1].ordinal

    def gauge_keys(self, steps: WhatIfSteps) -> list[BatchKey]:
        history, keys = self._history(), list[BatchKey]()
        remaining = sys.maxsize if steps.max_steps is None else steps.max_steps
        for attempt_id, _ in sorted(self.moved_in, reverse=True):
            found = history.steps(
                attempt_id, from_step=steps.from_step, to_step=steps.to_step, limit=remaining - len(keys)
            )
            keys += [BatchKey(attempt_id, one.step, None if one.first is None else one.last) for one in found]
        return keys

    def reports(self, keys: Collection[BatchKey]) -> Iterator[AnyReport]:
        history = self._history()
        for key in keys:
            yield from history.reports(key)

    def _history(self) -> LakeHistory:
        reader = _reader_of(self.url)
        return LakeHistory(reader, database_id=self.database_id, moved_in=dict(self.moved_in), lake_batch=_ANY_BATCH)


def lake_runs(url: str, *, project: str | None = None, runs: Collection[str] = ()) -> list[LakeRun]:
    """Return the runs of a lake by project and name, or only those of a project, or those named (PROJECT/RUN).

    Errors: NotReady for a lake that cannot be read; InvalidInput for a run that it does not have.
    """
    location = lake_location_of(url)
    attempts = DeltaTables(location).dataset(LAKE_ATTEMPTS)
    if attempts is None:
        raise NotReady(f"{location.url} is not a lake, or no run has moved to it yet")
    with lake_errors(location):
        is_wanted = None if project is None else pc.field("project") == project
        table = attempts.to_table(columns=list(_KEYS), filter=is_wanted)
    moved: dict[tuple[str, str, str, int], list[tuple[int, int]]] = {}
    for row in table.to_pylist():
        run = (row["project"], row["run"], row["database_id"], row["run_id"])
        moved.setdefault(run, []).append((row["attempt_id"], row["lake_batch_id"]))
    found = [
        LakeRun(
            url=url,
            database_id=database_id,
            run_id=run_id,
            key=RunKey(of_project, name),
            moved_in=tuple(sorted(attempts)),
        )
        for (of_project, name, database_id, run_id), attempts in sorted(moved.items())
    ]
    for wanted in set(runs) - {str(run.key) for run in found}:
        raise InvalidInput("--run", f"{wanted!r} is not in the lake {url}, which has {len(found):,} runs")
    return [run for run in found if not runs or str(run.key) in runs]


@lru_cache(maxsize=4)
def _reader_of(url: str) -> LakeReader:
    return LakeReader(lake_location_of(url))
