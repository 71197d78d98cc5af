"""The interfaces between the worker and the store, and the slots by which workers divide the runs."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from math import ceil
from typing import Any, Protocol, TypeAlias

from trmon.domain.adaptation.proposal import AdaptationSetting
from trmon.domain.alerts.alert import Alert
from trmon.domain.batches.batch import BatchRow
from trmon.domain.identity import BatchKey
from trmon.domain.messages import AnyNotice, AnyReport, Unread
from trmon.domain.pipeline.run_update import Frontier, RunProgress, RunUpdate
from trmon.domain.policies import PolicyVersion
from trmon.domain.runs.attempts import ActiveLaunch
from trmon.domain.runs.run import Attempt, Run

SLOTS = 128
"""Processes lease slots rather than runs, so that the cost does not grow with the number of runs."""

_STRIDE = 79
"""Odd, and near 128 divided by the golden ratio: a process's share is spread evenly over the slots."""

Fences: TypeAlias = Mapping[int, int]
"""The slots that a process holds, each with its fencing token, which grows each time the slot is leased."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotHoldings:
    """The slots that a process holds, and the number of processes that share all slots."""

    fences: Fences
    n_workers: int

    @property
    def share(self) -> int:
        """The number of slots per process, rounded up."""
        return ceil(SLOTS / max(self.n_workers, 1))

    @property
    def missing(self) -> int:
        """How many more slots the process should lease once they are free."""
        return max(0, self.share - len(self.fences))

    @property
    def surplus(self) -> frozenset[int]:
        """The slots beyond its share, which the process should release: the last ones in spread order."""
        return frozenset(sorted(self.fences, key=spread_order)[self.share :])

    def without(self, slots: Collection[int]) -> SlotHoldings:
        """Return the holdings without some slots."""
        kept = {slot: fence for slot, fence in self.fences.items() if slot not in slots}
        return SlotHoldings(fences=kept, n_workers=self.n_workers)


def spread_order(slot: Any) -> Any:
    """Return the key by which slots, or a column of them, are taken: runs that start together have adjacent slots."""
    return slot * _STRIDE % SLOTS


def slot_of(run_id: int | None) -> int:
    """Return the slot of a run; work that belongs to no run is in the first slot."""
    return (run_id or 0) % SLOTS


def in_slots(run_ids: Collection[int], slots: Collection[int]) -> set[int]:
    """Return the runs that are in one of the slots."""
    return {run_id for run_id in run_ids if slot_of(run_id) in slots}


class StoredRuns(Protocol):
    """The stored runs."""

    def by_id(self, run_id: int) -> Run:
        """Return a run. Errors: NotFound."""

    def attempts(self, run_id: int) -> list[Attempt]:
        """Return a run's attempts, oldest first."""


class StoredMessages(Protocol):
    """The stored messages of trainers, damaged ones included."""

    def unread_of(self, run_id: int, read: Frontier, *, limit: int) -> Unread:
        """Return the run's messages after its frontier, of one instant; at most `limit` reports and `limit` notices."""

    def notices_after(self, run_id: int, notice_id: int, *, limit: int) -> Sequence[AnyNotice]:
        """Return the run's notices with a larger id, oldest first."""

    def of_batch(self, key: BatchKey) -> Sequence[AnyReport]:
        """Return the stored reports of one batch in the order (rank, chunk)."""


class StoredPolicies(Protocol):
    """The policy versions of runs."""

    def current(self, run_id: int) -> PolicyVersion:
        """Return the current policy version of the run, the default one if none was set."""

    def history(self, run_id: int) -> list[PolicyVersion]:
        """Return all policy versions of the run, oldest first."""


class StoredAdaptations(Protocol):
    """The adaptation settings of runs."""

    def get(self, run_id: int) -> AdaptationSetting:
        """Return the adaptation setting of the run."""


class BatchReports(Protocol):
    """The stored reports of batches."""

    def of_batch(self, key: BatchKey) -> Sequence[AnyReport]:
        """Return the stored reports of one batch in the order (rank, chunk)."""


class PolicyHistory(Protocol):
    """The policy versions of runs, without the default."""

    def history(self, run_id: int) -> list[PolicyVersion]:
        """Return all policy versions of the run, oldest first."""


class CalibrationLog(Protocol):
    """The part of the log that calibration reads."""

    @property
    def reports(self) -> BatchReports:
        """The stored reports of batches."""

    @property
    def policies(self) -> PolicyHistory:
        """The policy versions of runs."""

    def batches_after(self, run_id: int, ordinal: int, *, limit: int) -> list[BatchRow]:
        """Return the closed batches of the run with a larger ordinal, in that order."""


class RunLog(Protocol):
    """The stored log of runs that a worker reads; all methods are safe to call from any thread."""

    @property
    def runs(self) -> StoredRuns:
        """The stored runs."""

    @property
    def reports(self) -> StoredMessages:
        """The stored messages of trainers."""

    @property
    def policies(self) -> StoredPolicies:
        """The policy versions of runs."""

    @property
    def adaptations(self) -> StoredAdaptations:
        """The adaptation settings of runs."""

    def unfinished_runs(self, slots: Collection[int] | None = None) -> list[Run]:
        """Return the runs, of some slots or all, that have not ended or have reports after their frontier."""

    def revision(self, run_id: int) -> int:
        """Return a number that changes when another process or a person edits the run, its policy or its bounds."""

    def progress(self, run_id: int) -> RunProgress:
        """Return the frontier of the run, zeros for a new one, and the newest checkpoint of its state."""

    def unread(self, read: Mapping[int, Frontier], *, limit: int) -> dict[int, Unread] | None:
        """Return the unread messages of some runs; None if a run has `limit` or more of either kind."""

    def batch(self, key: BatchKey) -> BatchRow | None:
        """Return a closed batch, or None."""

    def batches_after(self, run_id: int, ordinal: int, *, limit: int) -> list[BatchRow]:
        """Return the closed batches of the run with a larger ordinal, in that order."""

    def open_alerts(self, run_id: int) -> list[Alert]:
        """Return the run's pending and firing alerts."""

    def last_seen(self, run_id: int) -> float | None:
        """Return when the newest message of the run arrived, heartbeats included, on the server's clock."""

    def active_launches(self, run_id: int, *, since: float) -> list[ActiveLaunch]:
        """Return the launches of a run, by rank, that sent a heartbeat or began after a time."""


class RunUpdateWriter(Protocol):
    """Stores the updates of a worker."""

    def commit(self, updates: Sequence[RunUpdate], *, fences: Fences | None = None) -> list[Future[None]]:
        """Write updates, each in one transaction; each future completes when its update is on disk, or raises Fenced.

        Args: fences: the fencing tokens of the slots that the worker holds; None if there is only one worker.
        """


class Ownership(Protocol):
    """The slots of runs that this worker owns."""

    def fences(self) -> Fences | None:
        """Return the slots that the worker holds, each with its fencing token; None if it owns all runs permanently."""

    def surplus(self) -> frozenset[int]:
        """Return the slots to release once no pass over their runs is in progress."""

    def release(self, slots: Collection[int]) -> None:
        """Release slots."""
