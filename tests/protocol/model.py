"""What a run must look like, in plain Python: reports once, batches in order, and one alert for each change."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

GRACE_SECONDS = 60.0


class Place(NamedTuple):
    """What identifies a report: no two reports of a launch share it."""

    launch: str
    step: int
    rank: int
    chunk: int


class Batch(NamedTuple):
    """The key of a batch; batches are ordered by attempt, then step."""

    attempt_id: int
    step: int


class Change(NamedTuple):
    """An alert fires or resolves at a batch."""

    attempt_id: int
    step: int
    state: str


@dataclass(frozen=True)
class Acknowledged:
    """A report that the service has acknowledged; `is_ill` if the rule holds for it."""

    id: int
    batch: Batch
    digest: bytes
    n_sequences: int
    is_ill: bool
    received_at: float


class ClosedRow(NamedTuple):
    """A closed batch as it is stored."""

    ordinal: int
    batch: Batch
    n_sequences: int
    is_complete: bool
    is_revised: bool


@dataclass
class RunModel:
    """One run: acknowledgements go in, stored rows are compared with what follows from them."""

    reports: dict[Place, Acknowledged] = field(default_factory=dict)
    changes: list[Change] = field(default_factory=list)
    _closed: dict[Batch, int] = field(default_factory=dict)
    _folded: Batch | None = None
    _is_firing: bool = False

    def observe_rows(self, rows: Iterable[ClosedRow], *, now: float) -> None:
        """Compare the rows with the reports, and note which alerts the new ones must have changed."""
        found = sorted(rows)
        assert [row.ordinal for row in found] == list(range(1, len(found) + 1)), "ordinals have no gaps"
        assert len({row.batch for row in found}) == len(found), "a batch has one row"
        assert {row.batch: row.ordinal for row in found if row.batch in self._closed} == self._closed, "rows stay"
        for row in found:
            if row.batch not in self._closed:
                self._close(row, now=now)

    def _close(self, row: ClosedRow, *, now: float) -> None:
        included = self.of_batch(row.batch)
        assert row.n_sequences == sum(report.n_sequences for report in included), "a batch has all reports read so far"
        if not row.is_complete:
            newest_at = max(report.received_at for report in included)
            assert now - newest_at >= GRACE_SECONDS, "no batch closes before its reports are in or its grace is over"
        is_next = self._folded is None or row.batch > self._folded
        assert row.is_revised is not is_next, "a batch that comes after its successors is marked"
        self._closed[row.batch] = row.ordinal
        if is_next:
            self._folded = row.batch
            self._judge(row.batch, is_ill=any(report.is_ill for report in included))

    def _judge(self, batch: Batch, *, is_ill: bool) -> None:
        if is_ill is not self._is_firing:
            self._is_firing = is_ill
            self.changes.append(Change(*batch, "firing" if is_ill else "resolved"))

    def of_batch(self, batch: Batch) -> list[Acknowledged]:
        return [report for report in self.reports.values() if report.batch == batch]

    def check_settled(self, rows: Iterable[ClosedRow]) -> None:
        """Once nothing is open, each report is in effect exactly once."""
        batches = {report.batch for report in self.reports.values()}
        expected = {batch: sum(report.n_sequences for report in self.of_batch(batch)) for batch in batches}
        assert {row.batch: row.n_sequences for row in rows} == expected
