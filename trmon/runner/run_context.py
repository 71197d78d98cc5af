"""The portrait of a run: what is known of it beside its batches, and what its trainer says of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from trmon.domain.alerts.owner_change import OwnerChange
from trmon.domain.alerts.routing import Routes
from trmon.domain.context.pass_context import PassContext
from trmon.domain.model.messages import AnyReport, StoredNotice
from trmon.domain.policies.policy_registry import PolicyRegistry
from trmon.domain.policies.policy_version import PolicyVersion, asked_by_trainer
from trmon.domain.ports import RunLog
from trmon.domain.rules.rule import Rule
from trmon.domain.rules.rule_set import RuleSet
from trmon.domain.runs.liveness import LifeChange, Patience
from trmon.domain.state.run_update import Event
from trmon.runner.pass_changes import PassChanges
from trmon_client.core import wire
from trmon_client.core.policies.acceptance import Policy, PolicyError


class _Newest:
    """The rules in force with what follows from them: worked out once for all runs, until they are replaced."""

    def __init__(self, rules: Callable[[], tuple[Rule, ...]]) -> None:
        self._read = rules
        self._newest = RuleSet(rules())

    def __call__(self) -> RuleSet:
        """Rules are replaced all at once: others are another tuple."""
        rules = self._read()
        if rules is not self._newest.rules:
            self._newest = RuleSet(rules)
        return self._newest


@dataclass(frozen=True, kw_only=True)
class WatchConfig:
    """How runs are watched: by which rules, who hears of them, and how patiently."""

    rules: Callable[[], tuple[Rule, ...]]
    routes: Routes = field(default_factory=Routes)
    public_url: str | None = None
    grace_seconds: float = 60.0
    patience: Patience = field(default_factory=Patience)

    @cached_property
    def rule_set(self) -> Callable[[], RuleSet]:
        """The rules as a set, the same one for every run that is watched so."""
        return _Newest(self.rules)


class RunContext:
    """A run and its policies, kept current; what its trainer changes is noted in the ledger of the pass."""

    def __init__(self, log: RunLog, run_id: int, *, watch_config: WatchConfig) -> None:
        self._log = log
        self._watch_config = watch_config
        self._revision = log.revision(run_id)
        self.run = log.run(run_id)
        self.policies = PolicyRegistry.of(log.policy(run_id), versions=log.policy_versions(run_id))
        self.adaptation = log.adaptation(run_id)

    def pass_context(self, now: float) -> PassContext:
        """Return what the pipeline needs of it at a time."""
        return PassContext(
            run=self.run,
            policies=self.policies,
            rules=self._watch_config.rule_set(),
            receivers=self._watch_config.routes.of(self.run.owner),
            public_url=self._watch_config.public_url,
            now=now,
            everyone=self._watch_config.routes.receivers,
        )

    def owner_change(self, now: float) -> OwnerChange:
        """Return who hears of the run if it changes hands now."""
        return OwnerChange(routes=self._watch_config.routes, public_url=self._watch_config.public_url, now=now)

    def refresh(self) -> None:
        """Read it again if it has changed: people rename and tag runs and change their policies beside the worker."""
        revision = self._log.revision(self.run.id)
        if revision == self._revision:
            return
        self._revision = revision
        run = self._log.run(self.run.id)
        heard_at = [at for at in (run.last_report_at, self.run.last_report_at) if at is not None]
        self.run = replace(run, last_report_at=max(heard_at, default=None))
        self.adaptation = self._log.adaptation(run.id)
        current = self._log.policy(run.id)
        if current != self.policies.current:
            self.policies = self.policies.turning(current)

    def heard(self, report: AnyReport, pass_changes: PassChanges, *, is_newest: bool) -> None:
        """Note when a report came, and, of the newest batch that is known, how far the run is."""
        heard_at = max(self.run.last_report_at or report.received_at, report.received_at)
        batch = report.key.batch
        reached: dict[str, Any] = {"last_step": batch.step, "attempt_id": batch.attempt_id} if is_newest else {}
        self.run = replace(self.run, last_report_at=heard_at, **reached)
        pass_changes.change(**reached)

    def turned(self, change: LifeChange, pass_changes: PassChanges) -> None:
        """Note a change of state."""
        self.run = replace(self.run, state=change.state)
        pass_changes.change(state=change.state)
        data = {"state": change.state.value, "reason": change.reason.value, "error": change.error}
        pass_changes.events.append(Event(kind="state", data=data, at=change.at))

    def introduced(self, notice: StoredNotice, start: wire.Start, pass_changes: PassChanges, *, now: float) -> None:
        """Take up what rank 0 says of the run: owner, tags, configuration, mode, and the policy it asks for."""
        given: dict[str, Any] = {
            "owner": start.owner,
            "tags": tuple(start.tags),
            "config": start.config,
            "mode": start.mode,
        }
        changed = {name: value for name, value in given.items() if value}
        self.run = replace(self.run, **changed)
        pass_changes.change(**changed)
        if start.policy is not None:
            self._asked(start.policy, pass_changes, at=notice.received_at, now=now)

    def _asked(self, spec: dict[str, object], pass_changes: PassChanges, *, at: float, now: float) -> None:
        try:
            policy = Policy.parse(spec)
        except PolicyError as error:
            pass_changes.events.append(Event(kind="policy", data={"refused": str(error)}, at=at))
            return
        self.policies = self.policies.knowing(policy)
        version = asked_by_trainer(self.policies.current, policy, now=now)
        if version is not None:
            self.adopted(version, pass_changes, at=at)

    def adopted(self, version: PolicyVersion, pass_changes: PassChanges, *, at: float) -> None:
        """Note a policy version that comes from the trainer or from a controller."""
        self.policies = self.policies.turning(version)
        pass_changes.change(policy=version)
        policy = version.policy
        data = {"hash": policy.hash, "name": policy.name, "author": version.author, "reason": version.reason}
        pass_changes.events.append(Event(kind="policy", data=data, at=at))
