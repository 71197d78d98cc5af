"""Assembly of batches: which open batches are complete, which close now, and which still wait for reports."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum

import numpy as np

from trmon.domain.identity import BatchKey
from trmon.domain.messages import AnyReport, DamagedReport, StoredReport, decode_reports
from trmon_client.core import wire
from trmon_client.core.column_schema import COLUMNS, LABELS, N_BINS, TURN_COLUMNS, Pair
from trmon_client.core.columns import Columns, TurnColumns


class Completeness(Enum):
    """How complete a batch is."""

    COMPLETE = "all chunks of all ranks have arrived and are counted"
    UNCONFIRMED = "all ranks have reported, but not all of them have stated their number of chunks"
    MISSING_CHUNK = "a rank has stated more chunks than have arrived, or a chunk in between is missing"
    DAMAGED_CHUNK = "a stored chunk cannot be decoded"
    MISSING_RANK = "a rank has not reported"

    @property
    def lacks_data(self) -> bool:
        """Whether data that is known to exist is missing from the batch."""
        return self in (Completeness.MISSING_CHUNK, Completeness.DAMAGED_CHUNK, Completeness.MISSING_RANK)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClosedBatch:
    """A closed batch: its reports in the order (rank, chunk), its completeness, and its missing and damaged parts."""

    key: BatchKey
    reports: tuple[StoredReport, ...]
    completeness: Completeness
    missing_ranks: tuple[int, ...]
    damaged: tuple[DamagedReport, ...] = ()

    @property
    def newest_at(self) -> float:
        """When its newest report arrived, damaged ones included."""
        return max(report.received_at for report in self._all)

    @property
    def last_report_id(self) -> int:
        """The id of its newest report, damaged ones included."""
        return max(report.id for report in self._all)

    @property
    def _all(self) -> list[AnyReport]:
        return [*self.reports, *self.damaged]

    def decoded(self) -> ClosedBatch:
        """Return the batch with decoded columns; a report whose columns are damaged moves to `damaged`."""
        reports, damaged = decode_reports(self.reports)
        completeness = _least_complete([self.completeness], damaged)
        return replace(self, reports=reports, damaged=(*self.damaged, *damaged), completeness=completeness)


@dataclass(slots=True)
class OpenBatch:
    """The reports of one batch so far, and the chunk counts that its ranks have stated or announced.

    A count that a rank states after its last chunk precedes the number that its trainer announced.
    """

    key: BatchKey
    chunks: dict[int, dict[int, AnyReport]] = field(default_factory=dict)
    counts: dict[int, int] = field(default_factory=dict)
    world_size: int = 1
    newest_at: float = 0.0
    oldest_id: int | None = None

    announced: dict[int, int] = field(default_factory=dict)

    def add(self, report: AnyReport) -> None:
        """Add a report; the world size is the largest that any report states. A damaged report counts as arrived."""
        self.chunks.setdefault(report.key.rank, {})[report.key.chunk] = report
        stated = report.report.world_size if isinstance(report, StoredReport) else report.key.rank + 1
        self.world_size = max(self.world_size, stated)
        if isinstance(report, StoredReport) and report.report.chunks is not None:
            self.announced[report.key.rank] = report.report.chunks
        self.newest_at = max(self.newest_at, report.received_at)
        self.oldest_id = report.id if self.oldest_id is None else min(self.oldest_id, report.id)

    def reports(self) -> tuple[AnyReport, ...]:
        """Return its reports in the order (rank, chunk)."""
        return tuple(chunks[n] for _, chunks in sorted(self.chunks.items()) for n in sorted(chunks))

    def completeness_of(self, rank: int) -> Completeness:
        """Return how complete the reports of one rank are."""
        chunks, count = self.chunks.get(rank), self.counts.get(rank, self.announced.get(rank))
        if not chunks:
            return Completeness.MISSING_RANK
        if max(chunks) != len(chunks) - 1 or (count is not None and len(chunks) < count):
            return Completeness.MISSING_CHUNK
        return Completeness.UNCONFIRMED if count is None else Completeness.COMPLETE

    @property
    def arrived(self) -> dict[int, int]:
        """How many chunks of each rank have arrived."""
        return {rank: len(chunks) for rank, chunks in self.chunks.items()}

    def close(self) -> ClosedBatch:
        """Return the closed batch with the reports that have arrived."""
        ranks = {rank: self.completeness_of(rank) for rank in range(self.world_size)}
        reports = self.reports()
        damaged = tuple(report for report in reports if isinstance(report, DamagedReport))
        return ClosedBatch(
            key=self.key,
            reports=tuple(report for report in reports if isinstance(report, StoredReport)),
            completeness=_least_complete(ranks.values(), damaged),
            missing_ranks=tuple(rank for rank, found in ranks.items() if found is Completeness.MISSING_RANK),
            damaged=damaged,
        )


MAX_CLOSED = 64
"""How many closed batches may wait for the counts of their ranks; the completeness of older ones stays unknown."""


@dataclass(slots=True)
class ClosedCounts:
    """Of a closed batch: how many chunks of each rank had arrived, the counts so far, and whether some lack."""

    arrived: dict[int, int]
    counts: dict[int, int]
    is_unconfirmed: bool


@dataclass(slots=True)
class Assembly:
    """The open batches of one run; it has no clock and does no I/O, the worker passes reports and times."""

    batches: dict[BatchKey, OpenBatch] = field(default_factory=dict)
    _counts: dict[BatchKey, dict[int, int]] = field(default_factory=dict)
    _ended_ranks: dict[tuple[int, int], str] = field(default_factory=dict)
    _closed: dict[BatchKey, ClosedCounts] = field(default_factory=dict)
    _confirmed: dict[BatchKey, bool] = field(default_factory=dict)

    def add_report(self, report: AnyReport) -> None:
        """Add a report of an open batch, and the chunk counts that it states for earlier batches."""
        key = report.key.batch
        if key not in self.batches:
            self.batches[key] = OpenBatch(key, counts=self._counts.setdefault(key, {}))
        self.batches[key].add(report)
        self.update_from_report(report)

    def update_from_report(self, report: AnyReport) -> None:
        """Record the chunk counts in a report of any batch; a report of a new launch restarts its rank."""
        if isinstance(report, DamagedReport):
            return
        attempt_id, rank = report.key.batch.attempt_id, report.key.rank
        self.set_chunk_counts(attempt_id, rank, report.report.finished)
        if self._ended_ranks.get((attempt_id, rank)) not in (None, report.report.launch):
            del self._ended_ranks[attempt_id, rank]

    def set_chunk_counts(self, attempt_id: int, rank: int, finished: Iterable[wire.ChunkCount]) -> None:
        """Record how many chunks the finished updates of a rank have."""
        for stated in finished:
            key = BatchKey(attempt_id, stated.step, stated.update)
            self._counts.setdefault(key, {})[rank] = stated.chunks
            if key in self._closed:
                batch = self._closed[key]
                batch.counts[rank] = stated.chunks
                if batch.is_unconfirmed and batch.counts.keys() >= batch.arrived.keys():
                    batch.is_unconfirmed = False
                    self._confirmed[key] = all(batch.counts[rank] <= n for rank, n in batch.arrived.items())

    def take_confirmed(self) -> dict[BatchKey, bool]:
        """Return the batches that closed before their ranks had stated all counts, and do now: whether complete."""
        confirmed, self._confirmed = self._confirmed, {}
        return confirmed

    def rank_started(self, attempt_id: int, rank: int) -> None:
        """Record that a rank has started."""
        self._ended_ranks.pop((attempt_id, rank), None)

    def rank_ended(self, attempt_id: int, message: wire.Finish) -> None:
        """Record that a rank has ended: batches no longer wait for its reports."""
        self.set_chunk_counts(attempt_id, message.rank, message.finished)
        self._ended_ranks[attempt_id, message.rank] = message.launch

    def is_rank_ended(self, attempt_id: int, rank: int) -> bool:
        """Whether a rank has ended."""
        return (attempt_id, rank) in self._ended_ranks

    def close_due(self, *, now: float, grace_seconds: float, watching_since: float) -> list[ClosedBatch]:
        """Close the batches that are due, and return them, in order within each attempt.

        A batch is due when no more reports can arrive for it, or when its newest report is older than the grace
        period; a batch that waits also delays all later batches of its attempt. The grace period starts no earlier
        than `watching_since`: reports from a downtime of the service may still be in the spools of the trainers.
        """
        closed = []
        waiting: set[int] = set()
        for key in sorted(self.batches, key=lambda key: key.order):
            batch = self.batches[key]
            in_grace = now - max(batch.newest_at, watching_since) < grace_seconds
            if key.attempt_id in waiting or (in_grace and not self._is_final(batch)):
                waiting.add(key.attempt_id)
                continue
            closed.append(self._close(batch))
            del self.batches[key]
        for done in closed:  # Nothing reads the counts of closed batches any more.
            self._counts = {
                key: counts
                for key, counts in self._counts.items()
                if key.attempt_id != done.key.attempt_id or key.order > done.key.order or key in self.batches
            }
        return closed

    def grace_ends(self, *, grace_seconds: float, watching_since: float) -> float | None:
        """Return when the first grace period of an open batch ends, on the server's clock, or None."""
        newest = (max(batch.newest_at, watching_since) for batch in self.batches.values())
        return min((at + grace_seconds for at in newest), default=None)

    def oldest_report_id(self) -> int | None:
        """Return the smallest id of a report in an open batch, from which a restart must read again."""
        ids = (batch.oldest_id for batch in self.batches.values())
        return min((id_ for id_ in ids if id_ is not None), default=None)

    def reopen(self, reports: Iterable[AnyReport]) -> ClosedBatch:
        """Return a batch that was closed before, with its late reports. Args: reports: one or more, of all ranks."""
        found = list(reports)
        key = found[0].key.batch
        known = self._closed.get(key)
        batch = OpenBatch(key, counts={**self._counts.get(key, {}), **(known.counts if known else {})})
        for report in found:
            batch.add(report)
            for stated in report.report.finished if isinstance(report, StoredReport) else ():
                if (stated.step, stated.update) == (batch.key.step, batch.key.update):
                    batch.counts[report.key.rank] = stated.chunks
        return self._close(batch)

    def _close(self, batch: OpenBatch) -> ClosedBatch:
        done = batch.close()
        counts, is_unconfirmed = {**batch.announced, **batch.counts}, done.completeness is Completeness.UNCONFIRMED
        self._closed[batch.key] = ClosedCounts(batch.arrived, counts, is_unconfirmed)
        while len(self._closed) > MAX_CLOSED:
            del self._closed[next(iter(self._closed))]
        return done

    def _is_final(self, batch: OpenBatch) -> bool:
        attempt_id = batch.key.attempt_id
        return all(
            (attempt_id, rank) in self._ended_ranks or batch.completeness_of(rank) is Completeness.COMPLETE
            for rank in range(batch.world_size)
        )


def _least_complete(found: Iterable[Completeness], damaged: Sequence[DamagedReport]) -> Completeness:
    return max([*found, *(Completeness.DAMAGED_CHUNK for _ in damaged)], key=list(Completeness).index)


_LABEL_NAMES = {spec.name for spec in LABELS}


def merge_columns(parts: Sequence[Columns]) -> Columns:
    """Return the sequences of all parts in order.

    A part without the primary pair of the most sequences lacks log-probs that its batch has: its tokens count as
    invalid, so that one rank cannot hide a pair of the whole batch. Its rewards stay with its sequences.
    Args: parts: numpy, one or more. Source: formulas, section 2.
    """
    if len({part.pairs for part in parts}) == 1:
        return Columns.merge(*parts)
    n_by_pair: Counter[Pair | None] = Counter()
    for part in parts:
        n_by_pair[part.primary] += part.n_sequences
    pair = n_by_pair.most_common(1)[0][0]
    if pair is None:
        return Columns.merge(*parts)
    like = next(part for part in parts if pair in part.pairs)
    return Columns.merge(*(part if pair in part.pairs else _as_invalid(part, like=like) for part in parts))


def _as_invalid(part: Columns, *, like: Columns) -> Columns:
    """Return a part whose tokens are all invalid, with the columns and histograms of another part."""
    n = part.n_sequences
    reduced = {
        name: np.full(n, COLUMNS[name].identity, COLUMNS[name].dtype) for name in like if name not in _LABEL_NAMES
    }
    labels = {name: part[name] for name in part if name in _LABEL_NAMES}
    counted = {"n_invalid": part["n_invalid"] + part["n_tokens"]}
    turns = None
    if part.turns is not None and like.turns is not None:
        specs, n_turns = [TURN_COLUMNS[name] for name in like.turns.by_name], len(part.turns.n_tokens)
        of_turns = {spec.name: np.full(n_turns, spec.identity, spec.dtype) for spec in specs}
        turns = TurnColumns(part.turns.n_turns, of_turns)
    nothing = np.zeros(N_BINS, np.int64)
    return replace(
        part,
        by_name={**reduced, **labels, **counted},
        histograms=dict.fromkeys(like.histograms, nothing),
        kl_is=like.kl_is,
        kl_pair=like.kl_pair,
        turns=turns,
    )
