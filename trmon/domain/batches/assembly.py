"""Open batches: which are complete, which close now, and which still wait, each with a named reason."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from enum import Enum

from trmon.domain.model.identity import BatchKey
from trmon.domain.model.messages import AnyReport, DamagedReport, StoredReport, decoded
from trmon_client.core import wire


class Completeness(Enum):
    """How far an open batch has come."""

    COMPLETE = "every rank's chunks are in and counted"
    UNCONFIRMED = "every rank is there, but not every rank has said how many chunks it has"
    MISSING_CHUNK = "a rank has said that it has more chunks, or left a gap"
    DAMAGED_CHUNK = "a stored chunk cannot be decoded"
    MISSING_RANK = "a rank has sent nothing"

    @property
    def lacks_data(self) -> bool:
        """Whether closing the batch now would leave something out that is known to exist."""
        return self in (Completeness.MISSING_CHUNK, Completeness.DAMAGED_CHUNK, Completeness.MISSING_RANK)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClosedBatch:
    """A batch whose time has come: its reports in the order (rank, chunk), what is missing, and what is damaged."""

    key: BatchKey
    reports: tuple[StoredReport, ...]
    standing: Completeness
    missing_ranks: tuple[int, ...]
    damaged: tuple[DamagedReport, ...] = ()

    @property
    def newest_at(self) -> float:
        """When its newest report came, damaged ones included."""
        return max(report.received_at for report in self._all)

    @property
    def last_report_id(self) -> int:
        """The id of its newest report, damaged ones included."""
        return max(report.id for report in self._all)

    @property
    def _all(self) -> list[AnyReport]:
        return [*self.reports, *self.damaged]

    def decoded(self) -> ClosedBatch:
        """Return the batch with the columns of its reports decoded: a report whose columns are damaged is missing."""
        reports, damaged = decoded(self.reports)
        if not damaged:
            return replace(self, reports=reports)
        return replace(
            self,
            reports=reports,
            damaged=(*self.damaged, *damaged),
            standing=_weakest((self.standing, Completeness.DAMAGED_CHUNK)),
        )


@dataclass(slots=True)
class OpenBatch:
    """The reports of one batch so far, and the chunk counts its ranks have stated."""

    key: BatchKey
    chunks: dict[int, dict[int, AnyReport]] = field(default_factory=dict)
    counts: dict[int, int] = field(default_factory=dict)
    world_size: int = 1
    newest_at: float = 0.0
    oldest_id: int | None = None

    def accept(self, report: AnyReport) -> None:
        """Take a report; the world is as large as any report states. Nothing more comes for a damaged one."""
        self.chunks.setdefault(report.key.rank, {})[report.key.chunk] = report
        stated = report.report.world_size if isinstance(report, StoredReport) else report.key.rank + 1
        self.world_size = max(self.world_size, stated)
        self.newest_at = max(self.newest_at, report.received_at)
        self.oldest_id = report.id if self.oldest_id is None else min(self.oldest_id, report.id)

    def reports(self) -> tuple[AnyReport, ...]:
        """Return its reports in the order (rank, chunk)."""
        return tuple(chunks[n] for _, chunks in sorted(self.chunks.items()) for n in sorted(chunks))

    def standing_of(self, rank: int) -> Completeness:
        """Return how far one rank has come."""
        chunks, count = self.chunks.get(rank), self.counts.get(rank)
        if not chunks:
            return Completeness.MISSING_RANK
        if max(chunks) != len(chunks) - 1 or (count is not None and len(chunks) < count):
            return Completeness.MISSING_CHUNK
        return Completeness.UNCONFIRMED if count is None else Completeness.COMPLETE

    def close(self) -> ClosedBatch:
        """Return the batch as it stands."""
        ranks = {rank: self.standing_of(rank) for rank in range(self.world_size)}
        found = self.reports()
        damaged = tuple(report for report in found if isinstance(report, DamagedReport))
        return ClosedBatch(
            key=self.key,
            reports=tuple(report for report in found if isinstance(report, StoredReport)),
            standing=_weakest([*ranks.values(), *([Completeness.DAMAGED_CHUNK] if damaged else [])]),
            missing_ranks=tuple(rank for rank, standing in ranks.items() if standing is Completeness.MISSING_RANK),
            damaged=damaged,
        )


@dataclass(slots=True)
class Assembly:
    """The open batches of one run. It owns no clock and reads nothing: the worker tells it what came and when."""

    batches: dict[BatchKey, OpenBatch] = field(default_factory=dict)
    _counts: dict[BatchKey, dict[int, int]] = field(default_factory=dict)
    _left: dict[tuple[int, int], str] = field(default_factory=dict)

    def accept(self, report: AnyReport) -> None:
        """Take a report of a batch that is not closed, and the chunk counts it states of earlier ones."""
        key = report.key.batch
        if key not in self.batches:
            self.batches[key] = OpenBatch(key, counts=self._counts.setdefault(key, {}))
        self.batches[key].accept(report)
        self.heard(report)

    def heard(self, report: AnyReport) -> None:
        """Note what any report, also one of a closed batch, says of its rank: chunk counts, and that it is back."""
        if isinstance(report, DamagedReport):
            return
        attempt_id, rank = report.key.batch.attempt_id, report.key.rank
        self.count(attempt_id, rank, report.report.finished)
        if self._left.get((attempt_id, rank)) not in (None, report.report.launch):
            del self._left[attempt_id, rank]

    def count(self, attempt_id: int, rank: int, finished: Iterable[wire.ChunkCount]) -> None:
        """Note how many chunks a rank's finished updates have."""
        for stated in finished:
            key = BatchKey(attempt_id, stated.step, stated.update)
            self._counts.setdefault(key, {})[rank] = stated.chunks

    def enter(self, attempt_id: int, rank: int) -> None:
        """Note that a rank has started."""
        self._left.pop((attempt_id, rank), None)

    def leave(self, attempt_id: int, message: wire.Finish) -> None:
        """Note that a rank has ended: nothing it has not sent is waited for."""
        self.count(attempt_id, message.rank, message.finished)
        self._left[attempt_id, message.rank] = message.launch

    def due(self, *, now: float, grace_seconds: float, watching_since: float) -> list[ClosedBatch]:
        """Return the batches that close now, removed from here, each attempt's in order.

        A batch closes when nothing more can come for it, or when its newest report is older than the grace; one
        that waits holds back all later ones of its attempt. Grace counts from when the service began to watch, as
        what came while it was down may still lie in the trainers' spools.
        """
        closed = []
        waiting: set[int] = set()
        for key in sorted(self.batches, key=lambda key: key.order):
            batch = self.batches[key]
            patient = now - max(batch.newest_at, watching_since) < grace_seconds
            if key.attempt_id in waiting or (patient and not self._is_settled(batch)):
                waiting.add(key.attempt_id)
                continue
            closed.append(batch.close())
            del self.batches[key]
        for done in closed:
            self._forget(done.key)
        return closed

    def patience_ends(self, *, grace_seconds: float, watching_since: float) -> float | None:
        """Return when the grace of the first open batch ends, on the server's clock."""
        newest = (max(batch.newest_at, watching_since) for batch in self.batches.values())
        return min((at + grace_seconds for at in newest), default=None)

    def oldest_report_id(self) -> int | None:
        """Return the smallest id of a report in an open batch; a restart must read again from there."""
        ids = (batch.oldest_id for batch in self.batches.values())
        return min((id_ for id_ in ids if id_ is not None), default=None)

    def _is_settled(self, batch: OpenBatch) -> bool:
        attempt_id = batch.key.attempt_id
        return all(
            (attempt_id, rank) in self._left or batch.standing_of(rank) is Completeness.COMPLETE
            for rank in range(batch.world_size)
        )

    def _forget(self, key: BatchKey) -> None:
        """Counts of this batch and of earlier ones of its attempt serve nobody any more."""
        stale = [
            other
            for other in self._counts
            if other.attempt_id == key.attempt_id and other.order <= key.order and other not in self.batches
        ]
        for other in stale:
            del self._counts[other]


def reopened_batch(reports: Iterable[AnyReport]) -> ClosedBatch:
    """Return a batch that was closed before, with what came late; at least one report."""
    found = list(reports)
    batch = OpenBatch(found[0].key.batch)
    for report in found:
        batch.accept(report)
    return batch.close()


_WEAKNESS = {standing: weakness for weakness, standing in enumerate(Completeness)}


def _weakest(standings: Iterable[Completeness]) -> Completeness:
    return max(standings, key=_WEAKNESS.__getitem__)
