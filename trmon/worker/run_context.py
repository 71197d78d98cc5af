"""A run's description, policies and adaptation setting, kept current from the store and from its trainer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar

import structlog

from trmon.domain.alerts.delivery import OwnerChange, Routes
from trmon.domain.batches.batch import BatchRow
from trmon.domain.errors import Damaged, LakeUnavailable, Overloaded
from trmon.domain.identity import BatchKey
from trmon.domain.messages import AnyReport, StoredNotice
from trmon.domain.pipeline.publish import Event
from trmon.domain.pipeline.state import PassContext
from trmon.domain.policies import PolicyRegistry, PolicyVersion, version_from_trainer
from trmon.domain.rules.rule import RuleSet
from trmon.domain.runs.liveness import SilenceLimits, StateChange
from trmon.domain.runs.run import RunWarning, with_checkpoint, with_new_warnings, without_checkpoints_after
from trmon.fleet.heartbeats import Heartbeat
from trmon.store.repositories.run_log import RunLog
from trmon.worker.pass_changes import PassChanges
from trmon_client.core import wire
from trmon_client.core.policies.policy import Policy
from trmon_client.core.policies.sequence_statistics import PolicyError

T = TypeVar("T")

log = structlog.get_logger(__name__)


@dataclass(kw_only=True)
class WatchConfig:
    """By what every run is evaluated: rules, alert routes, how long to wait for reports; and what beats meanwhile."""

    rules: Callable[[], RuleSet]
    routes: Routes = field(default_factory=Routes)
    public_url: str | None = None
    runbook_base_url: str | None = None
    grace_seconds: float = 60.0
    patience: SilenceLimits = field(default_factory=SilenceLimits)
    heartbeat: Heartbeat = field(default_factory=Heartbeat)


class RunHistory:
    """The stored rows and reports of a run, as its judging reads them; none of a lake that cannot be read.

    After a failed read the lake is left alone until the run is loaded again: the judging of others waits for each.
    """

    def __init__(self, log: RunLog, *, beat: Callable[[], None] = lambda: None) -> None:
        """Args: beat: called at each read, which may wait for the lake."""
        self._log = log
        self._beat = beat
        self.policies = log.policies
        self.is_unavailable = False
        """Whether something that the lake has could not be read."""

    def batch(self, key: BatchKey) -> BatchRow | None:
        """Return a closed batch, or None."""
        return self._read(lambda: self._log.batch(key), lambda: None)

    def batches_after(self, run_id: int, ordinal: int, *, limit: int) -> list[BatchRow]:
        """Return the closed batches of the run with a larger ordinal, in that order."""
        read = partial(self._log.batches_after, run_id, ordinal, limit=limit)
        return self._read(read, partial(read, with_moved=False))

    def reports_of(self, key: BatchKey) -> list[AnyReport]:
        """Return the stored reports of one batch in the order (rank, chunk)."""
        return self._read(lambda: self._log.reports.of_batch(key), list)

    def _read(self, read: Callable[[], T], read_database: Callable[[], T]) -> T:
        self._beat()
        if not self.is_unavailable:
            try:
                return read()
            except (LakeUnavailable, Overloaded, Damaged) as error:
                self.is_unavailable = True
                log.error("history_unavailable", error=str(error))
        return read_database()


class RunContext:
    """A run and its policies; each change that comes from its trainer is added to the changes of the pass."""

    def __init__(self, log: RunLog, run_id: int, *, watch_config: WatchConfig) -> None:
        self._log = log
        self._watch_config = watch_config
        self.beat = watch_config.heartbeat.beat
        """Records that the worker makes progress."""
        self.history = RunHistory(log, beat=self.beat)
        self._revision = log.revision(run_id)
        self.run = log.runs.by_id(run_id)
        self.policies = PolicyRegistry.of(log.policies.current(run_id), versions=log.policies.history(run_id))
        self.adaptation = log.adaptations.get(run_id)

    def pass_context(self, now: float) -> PassContext:
        """Return the context of a pipeline pass at a time."""
        return PassContext(
            run=self.run,
            policies=self.policies,
            rules=self._watch_config.rules(),
            receivers=self._watch_config.routes.of(self.run.owner),
            public_url=self._watch_config.public_url,
            runbook_base_url=self._watch_config.runbook_base_url,
            now=now,
            all_receivers=self._watch_config.routes.receivers,
        )

    def owner_change(self, now: float) -> OwnerChange:
        """Return what computes the deliveries if the run changes its owner now."""
        config = self._watch_config
        return OwnerChange(
            routes=config.routes, public_url=config.public_url, now=now, health_rules=config.rules().of_health
        )

    def refresh(self) -> None:
        """Read the run again if its revision has changed: the API edits runs, policies and settings meanwhile."""
        revision = self._log.revision(self.run.id)
        if revision == self._revision:
            return
        self._revision = revision
        run = self._log.runs.by_id(self.run.id)
        report_times = [at for at in (run.last_report_at, self.run.last_report_at) if at is not None]
        self.run = replace(run, last_report_at=max(report_times, default=None))
        self.adaptation = self._log.adaptations.get(run.id)
        current = self._log.policies.current(run.id)
        if current != self.policies.current:
            self.policies = self.policies.with_current(current)

    def record_progress(self, key: BatchKey, changes: PassChanges, *, at: float, is_newest: bool) -> None:
        """Record when a report or scalars came and, if they are of the newest step, the run's attempt and step."""
        last_report_at = max(self.run.last_report_at or at, at)
        progress: dict[str, Any] = {"last_step": key.step, "attempt_id": key.attempt_id} if is_newest else {}
        if is_newest and self.run.attempt_id not in (None, key.attempt_id):
            self._set_warnings(without_checkpoints_after(self.run.warnings, key.step), changes)
        self.run = replace(self.run, last_report_at=last_report_at, **progress)
        changes.set_run_fields(**progress)

    def record_state(self, change: StateChange, changes: PassChanges) -> None:
        """Record a change of the run's state, and with an end how the run ended."""
        self.run = replace(self.run, state=change.state, ending=change.ending or self.run.ending)
        changes.set_run_fields(state=change.state)
        if change.ending is not None:
            changes.set_run_fields(ending=change.ending)
        error = change.ending.error if change.ending else ""
        data = {"state": change.state.value, "reason": change.reason.value, "error": error}
        changes.events.append(Event(kind="state", data=data, at=change.at))

    def record_warnings(self, reported: Mapping[str, str], changes: PassChanges, *, at: float) -> None:
        """Record mistakes in the trainer's calls that its processes report."""
        self._set_warnings(with_new_warnings(self.run.warnings, reported, at=at), changes)

    def record_checkpoint(self, saved: wire.SavedCheckpoint, changes: PassChanges, *, at: float) -> None:
        """Record a checkpoint that the trainer has saved."""
        self._set_warnings(with_checkpoint(self.run.warnings, saved, at=at), changes)

    def _set_warnings(self, warnings: tuple[RunWarning, ...], changes: PassChanges) -> None:
        if warnings != self.run.warnings:
            self.run = replace(self.run, warnings=warnings)
            changes.set_run_fields(warnings=warnings)

    def record_start(self, notice: StoredNotice, start: wire.Start, changes: PassChanges) -> None:
        """Record what rank 0 states of the run: owner, tags, configuration, mode, and the policy it asks for."""
        stated: dict[str, Any] = {
            "owner": start.owner,
            "tags": tuple(start.tags),
            "config": start.config,
            "mode": start.mode,
        }
        changed = {name: value for name, value in stated.items() if value}
        self.run = replace(self.run, **changed)
        changes.set_run_fields(**changed)
        if start.policy is not None:
            self._apply_trainer_policy(start.policy, changes, at=notice.received_at)

    def adopt_policy(self, version: PolicyVersion, changes: PassChanges, *, at: float) -> None:
        """Make a policy version of the trainer or of a controller the current one."""
        self.policies = self.policies.with_current(version)
        changes.set_run_fields(policy=version)
        policy = version.policy
        data = {"hash": policy.hash, "name": policy.name, "author": version.author, "reason": version.reason}
        changes.events.append(Event(kind="policy", data=data, at=at))

    def _apply_trainer_policy(self, spec: dict[str, object], changes: PassChanges, *, at: float) -> None:
        try:
            policy = Policy.parse(spec)
        except PolicyError as error:
            changes.events.append(Event(kind="policy", data={"refused": str(error)}, at=at))
            return
        self.policies = self.policies.with_policy(policy)
        version = version_from_trainer(self.policies.current, policy, now=changes.now)
        if version is not None:
            self.adopt_policy(version, changes, at=at)
