"""The runs of an archive, and the what-ifs and the history that are read from a stored run without a database."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Protocol, TypeVar

from trmon.domain.alerts.alert import SINCE_LABEL
from trmon.domain.analysis.whatif import CoveredRange, WhatIfEffect
from trmon.domain.backtest.evaluation import HAS_FIRED, PolicyMaskRate, StoredHistory, mask_rate_of
from trmon.domain.batches.batch import BatchRow
from trmon.domain.errors import InvalidInput
from trmon.domain.identity import BatchKey, RunKey
from trmon.domain.messages import AnyReport, decode_reports
from trmon.domain.runs.run import Run
from trmon.store.archive import arrow_tables, table_files
from trmon.store.archive.arrow_tables import ALERTS, REPORTS, RUNS
from trmon.store.archive.manifest import read_manifest
from trmon.store.archive.table_files import PIECE_REPORTS
from trmon.store.rows.messages import stored_report
from trmon.store.rows.runs import run_from_row
from trmon_client.core.policies.policy import Policy
from trmon_client.core.wire import unpack_bits

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIfSteps:
    """The newest steps of a run from a first to a last one, both included; by default all of them."""

    from_step: int | None = None
    to_step: int | None = None
    max_steps: int | None = None


class RunSource(Protocol):
    """A run that can be read in any process: it is small, and sent to the workers of a cluster."""

    @property
    def key(self) -> RunKey:
        """Its project and name."""

    def run(self) -> Run:
        """Return the run as it was when it was stored."""

    def rows(self) -> Iterator[BatchRow]:
        """Yield its batches in the order of their ordinals, a page in memory at a time."""

    def gauge_keys(self, steps: WhatIfSteps) -> list[BatchKey]:
        """Return the key of the batch that gauges show for each step: the rollout, or else the last update."""

    def reports(self, keys: Collection[BatchKey]) -> Iterator[AnyReport]:
        """Yield the reports of some batches, a few in memory at a time."""


def effects_on(
    stored: RunSource, policies: Sequence[Policy], steps: WhatIfSteps
) -> tuple[list[WhatIfEffect], CoveredRange]:
    """Return what policies would have masked of a run's steps, and the steps that have reports; reads each once."""
    keys = stored.gauge_keys(steps)
    effects = [WhatIfEffect(policy) for policy in policies]
    found: set[BatchKey] = set()
    for packed in stored.reports(keys):
        for report in decode_reports([packed])[0]:
            columns = report.columns()
            accepted = unpack_bits(report.accepted, columns.n_sequences)
            for effect in effects:
                effect.add(columns, accepted=accepted)
            found.add(report.key.batch)
    covered = CoveredRange()
    for key in keys:
        covered.add(key.step, stored=key in found)
    return effects, covered


def backtest_history(stored: RunSource) -> StoredHistory:
    """Return a run as a backtest reads it."""
    raised = stored.raised if isinstance(stored, ArchivedRun) else None
    return StoredHistory(run=stored.run(), rows=stored.rows, apply_policy=partial(_mask_rate, stored), raised=raised)


def _mask_rate(stored: RunSource, policy: Policy) -> PolicyMaskRate:
    [effect], _ = effects_on(stored, [policy], WhatIfSteps())
    return mask_rate_of(effect)


_KEY = ("attempt_id", "step", "update_index")


@dataclass(frozen=True, slots=True)
class ArchivedRun:
    """Implements RunSource, which documents the methods, on the files of a folder of `trmon export`."""

    root: Path
    key: RunKey

    def run(self) -> Run:
        """Return the run. Errors: InvalidInput for a damaged archive, as of every method."""
        [row] = self._read(RUNS.name, RUNS.from_arrow)
        return run_from_row({**row, "last_report_at": None}, tags=())

    def raised(self) -> set[tuple[str, int]]:
        """Return the rule of each alert that fired, and the step since which something is wrong."""
        rows = self._read(ALERTS.name, ALERTS.from_arrow)
        fired = (row for row in rows if row["state"] in HAS_FIRED)
        return {(row["rule"], int(row["labels"].get(SINCE_LABEL, row["step"]))) for row in fired}

    def rows(self) -> Iterator[BatchRow]:
        return self._read(arrow_tables.BATCHES, arrow_tables.batches_from_arrow)

    def gauge_keys(self, steps: WhatIfSteps) -> list[BatchKey]:
        newest: dict[tuple[int, int], int | None] = {}
        for piece in table_files.read_table(self.root, arrow_tables.BATCHES, run=self.key.run, columns=_KEY):
            for attempt_id, step, update in zip(*(column.to_pylist() for column in piece.columns), strict=True):
                if _is_within(step, steps):
                    known = newest.get((attempt_id, step), -1)
                    newest[attempt_id, step] = None if update is None or known is None else max(update, known)
        keys = [BatchKey(attempt_id, step, update) for (attempt_id, step), update in sorted(newest.items())[::-1]]
        return keys[: steps.max_steps]

    def reports(self, keys: Collection[BatchKey]) -> Iterator[AnyReport]:
        wanted, name = set(keys), REPORTS.name
        for piece in table_files.read_table(self.root, name, run=self.key.run, n_rows=PIECE_REPORTS):
            for row in piece.select(REPORTS.schema.names).to_pylist():
                if BatchKey(row["attempt_id"], row["step"], row["update_index"]) in wanted:
                    yield stored_report(SimpleNamespace(**row, run_id=0))

    def _read(self, table: str, decode: Callable[[Any], list[T]]) -> Iterator[T]:
        pieces = table_files.read_decoded_rows(self.root, table, run=self.key.run, decode=decode)
        return chain.from_iterable(pieces)


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
