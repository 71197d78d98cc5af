"""The runs of an archive, read piece by piece."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from types import SimpleNamespace

from trmon.domain.batches.batch import BatchRow
from trmon.domain.model.errors import InvalidInput
from trmon.domain.model.identity import BatchKey, RunKey
from trmon.domain.model.messages import AnyReport
from trmon.domain.runs.run import Run, RunState
from trmon.store.archive import batches, table_files
from trmon.store.archive.archived_tables import REPORTS, RUNS
from trmon.store.archive.manifest import read_manifest
from trmon.store.archive.table_files import PIECE_REPORTS
from trmon.store.rows.message_rows import stored_report
from trmon.store.stored_runs.run_source import WhatIfSteps

_KEY = ("attempt_id", "step", "update_index")


@dataclass(frozen=True, slots=True)
class ArchivedRun:
    """Implements RunSource, which documents the methods, on the files of a folder of `trmon export`."""

    root: Path
    key: RunKey

    def run(self) -> Run:
        """Return the run. Errors: InvalidInput for a damaged archive, as of every method."""
        [[row]] = table_files.read_decoded_rows(self.root, RUNS.name, run=self.key.run, decode=RUNS.from_arrow)
        return Run(
            id=row["id"],
            key=self.key,
            state=RunState(row["state"]),
            owner=row["owner"],
            tags=(),
            config=row["config"],
            mode=row["mode"],
            created_at=row["created_at"],
            last_report_at=None,
            last_step=row["last_step"],
            attempt_id=row["attempt_id"],
        )

    def rows(self) -> Iterator[BatchRow]:
        """Yield its batches."""
        return chain.from_iterable(
            table_files.read_decoded_rows(self.root, batches.NAME, run=self.key.run, decode=batches.batches_from_arrow)
        )

    def gauge_keys(self, steps: WhatIfSteps) -> list[BatchKey]:
        """Return the key of each step, newest first."""
        newest: dict[tuple[int, int], int | None] = {}
        for piece in table_files.read_table(self.root, batches.NAME, run=self.key.run, columns=_KEY):
            for attempt_id, step, update in zip(*(column.to_pylist() for column in piece.columns), strict=True):
                if _is_within(step, steps):
                    known = newest.get((attempt_id, step), -1)
                    newest[attempt_id, step] = None if update is None or known is None else max(update, known)
        keys = [BatchKey(attempt_id, step, update) for (attempt_id, step), update in sorted(newest.items())[::-1]]
        return keys[: steps.max_steps]

    def reports(self, keys: Collection[BatchKey]) -> Iterator[AnyReport]:
        """Yield the reports of some batches."""
        wanted, name = set(keys), REPORTS.name
        for piece in table_files.read_table(self.root, name, run=self.key.run, n_rows=PIECE_REPORTS):
            for row in piece.select(REPORTS.schema.names).to_pylist():
                if BatchKey(row["attempt_id"], row["step"], row["update_index"]) in wanted:
                    yield stored_report(SimpleNamespace(**row, run_id=0))


def archived_runs(root: Path, *, runs: Collection[str]) -> list[ArchivedRun]:
    """Return the runs of an archive of `trmon export`, or only those named (PROJECT/RUN).

    Errors: InvalidInput for a folder that is not an archive, a damaged one, or a run that it does not have.
    """
    archived = read_manifest(root)
    found = {str(key): ArchivedRun(root, key) for key in (RunKey(archived.project, name) for name in archived.runs)}
    for wanted in runs:
        if wanted not in found:
            raise InvalidInput("--run", f"{wanted!r} is not in {root}, which has {', '.join(found)}")
    return [run for name, run in found.items() if not runs or name in runs]


def _is_within(step: int, steps: WhatIfSteps) -> bool:
    return (steps.from_step is None or step >= steps.from_step) and (steps.to_step is None or step <= steps.to_step)
