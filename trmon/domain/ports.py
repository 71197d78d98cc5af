"""What the worker asks of the store; the store implements it on SQLite and on PostgreSQL."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import Future
from typing import Protocol

from trmon.domain.adaptation.adaptation_setting import AdaptationSetting
from trmon.domain.alerts.alert import Alert
from trmon.domain.batches.batch import BatchRow
from trmon.domain.model.identity import BatchKey
from trmon.domain.model.messages import AnyNotice, AnyReport, Unread
from trmon.domain.model.slots import Fences
from trmon.domain.policies.policy_version import PolicyVersion
from trmon.domain.runs.duplicate_trainers import Speaker
from trmon.domain.runs.run import Attempt, Run
from trmon.domain.state.run_update import Frontier, Reached, RunUpdate


class RunLog(Protocol):
    """The durable log of runs, as a worker reads it; every method may be called from any thread."""

    def unfinished_runs(self, slots: Collection[int] | None = None) -> list[Run]:
        """Return the runs, of some slots or all, that have not ended or have reports beyond their frontier."""

    def run(self, run_id: int) -> Run:
        """Return a run. Errors: NotFound."""

    def revision(self, run_id: int) -> int:
        """Return a number that is another one once somebody beside the worker changed the run, its policy or bounds."""

    def attempts(self, run_id: int) -> list[Attempt]:
        """Return a run's attempts, oldest first."""

    def reached(self, run_id: int) -> Reached:
        """Return how far the run was folded, zeros for a new one, and the newest checkpoint of its state."""

    def reports_after(self, run_id: int, report_id: int, *, limit: int) -> Sequence[AnyReport]:
        """Return the run's reports with a larger id, oldest first, damaged ones by their place."""

    def notices_after(self, run_id: int, notice_id: int, *, limit: int) -> Sequence[AnyNotice]:
        """Return the run's notices with a larger id, oldest first, damaged ones by their place."""

    def mail(self, read: Mapping[int, Frontier], *, limit: int) -> dict[int, Unread] | None:
        """Return what came of each of some runs since it was read; None if it is as much as `limit` of either kind."""

    def batch_reports(self, key: BatchKey) -> Sequence[AnyReport]:
        """Return the stored reports of one batch in the order (rank, chunk), damaged ones by their place."""

    def batch(self, key: BatchKey) -> BatchRow | None:
        """Return a closed batch, or None."""

    def batches_after(self, run_id: int, ordinal: int, *, limit: int) -> list[BatchRow]:
        """Return the run's closed batches folded after an ordinal, in that order."""

    def open_alerts(self, run_id: int) -> list[Alert]:
        """Return the run's pending and firing alerts."""

    def policy(self, run_id: int) -> PolicyVersion:
        """Return the run's current policy version, the default one if none was ever set."""

    def policy_versions(self, run_id: int) -> list[PolicyVersion]:
        """Return every policy version the run had, oldest first."""

    def adaptation(self, run_id: int) -> AdaptationSetting:
        """Return how the run's bounds are adapted."""

    def last_seen(self, run_id: int) -> float | None:
        """Return when the run's newest message of any kind came, heartbeats included, on the server's clock."""

    def speakers(self, run_id: int, *, since: float) -> list[Speaker]:
        """Return, by rank, the launches of a run whose hearts have beaten since a time, or that began since."""


class RunUpdateWriter(Protocol):
    """Whoever makes durable what a worker finds."""

    def commit(self, outcomes: Sequence[RunUpdate], *, fences: Fences | None = None) -> list[Future[None]]:
        """Write outcomes, each in one transaction; each future ends when its one is on disk. Errors, from it: Fenced.

        Args: fences: those under which the runs' slots are held; None where there is one worker only.
        """


class Ownership(Protocol):
    """The runs that are this worker's."""

    def fences(self) -> Fences | None:
        """Return the slots that are held for now, each with its fence; None where all runs are its own for ever."""

    def surplus(self) -> frozenset[int]:
        """Return the slots to be given up, once their runs are at rest."""

    def release(self, slots: Collection[int]) -> None:
        """Give slots up."""
