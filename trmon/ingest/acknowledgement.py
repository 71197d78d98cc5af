"""The acknowledgement of a stored message: its accepted bits, the current policy if it changed, advice."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from trmon.domain.access import EVERYTHING
from trmon.domain.errors import NotFound
from trmon.domain.identity import RunKey
from trmon.domain.messages import PreparedMessage, WriteOutcome, WriteResult
from trmon.domain.policies import PolicyVersion, default_version, version_from_trainer
from trmon.fleet.views import RunViewCache
from trmon.store import Store
from trmon.store.repositories.policies import Policies
from trmon.store.repositories.runs import Runs
from trmon_client.core import wire
from trmon_client.core.policies.policy import Policy
from trmon_client.core.policies.sequence_statistics import PolicyError

CACHE_SECONDS = 600.0
"""How long a policy change without a notice may be missed: every edit gives one, in its commit or in its event."""
MAX_CACHED = 10_000


class CurrentPolicies:
    """Policies by run; may be called from any thread."""

    def __init__(self, policies: Policies, runs: Runs) -> None:
        self._policies = policies
        self._runs = runs
        self._cached: dict[int, tuple[PolicyVersion, float]] = {}
        self._ids: dict[RunKey, int] = {}
        self._edits = 0

    def cached(self, run_id: int) -> PolicyVersion | None:
        """Return the run's policy if it is in the cache; never waits for the store."""
        version, at = self._cached.get(run_id, (None, 0.0))
        return version if time.monotonic() - at < CACHE_SECONDS else None

    def is_cached(self, key: RunKey) -> bool:
        """Return whether the policy of a run is in the cache by its name; never waits for the store."""
        run_id = self._ids.get(key)
        return run_id is not None and self.cached(run_id) is not None

    def read(self, run_id: int) -> PolicyVersion:
        """Return the run's policy, from the store if it is not cached. Errors: NotFound."""
        version = self.cached(run_id)
        if version is not None:
            return version
        edits = self._edits
        version = self._policies.current(run_id)
        self._put(run_id, version)
        # An edit may have been committed after the read.
        if self._edits != edits:
            self._cached.pop(run_id, None)
        return version

    def read_by_key(self, key: RunKey) -> PolicyVersion:
        """Return the policy of a run by its name, or the default one if there is no such run yet."""
        edits = self._edits
        try:
            run_id = self._ids.get(key) or self._runs.get(key, access=EVERYTHING).id
            version = self.read(run_id)
        except NotFound:
            return default_version(now=time.time())
        self._ids[key] = run_id
        if self._edits != edits:
            self._ids.pop(key, None)
        return version

    def invalidate(self, run_id: int) -> None:
        """Drop a run whose name or policy was changed."""
        self._edits += 1
        self._cached.pop(run_id, None)
        self._ids = {key: id_ for key, id_ in self._ids.items() if id_ != run_id}

    def _put(self, run_id: int, version: PolicyVersion) -> None:
        if len(self._cached) >= MAX_CACHED:
            self._cached.clear()
            self._ids.clear()
        self._cached[run_id] = (version, time.monotonic())


def policy_update_of(version: PolicyVersion) -> wire.PolicyUpdate:
    """Return a policy version in the form that trainers receive: only what decides."""
    return wire.PolicyUpdate(
        hash=version.policy.hash,
        spec=version.policy.decision_spec(),
        shadows=[shadow.decision_spec() for shadow in version.shadows],
        from_step=version.from_step,
    )


class AckBuilder:
    """Builds acknowledgements from what the store wrote and from the run's current policy and view."""

    def __init__(self, store: Store, *, policies: CurrentPolicies, view_cache: RunViewCache) -> None:
        self._store = store
        self._policies = policies
        self._view_cache = view_cache

    async def build(self, prepared: PreparedMessage, result: WriteResult) -> wire.Ack:
        """Return the acknowledgement of a message."""
        if result.status is WriteOutcome.CONFLICT:
            return wire.Ack("conflict", problem=_conflict(prepared))
        is_report = isinstance(prepared.message, wire.Report)
        is_of_step = is_report or isinstance(prepared.message, wire.Scalars)
        return wire.Ack(
            status="stored" if result.status is WriteOutcome.STORED else "duplicate",
            accepted=result.accepted if is_report else None,
            policy=await self._policy_update(prepared.message, result.run_id),
            advice=self._advice(result) if is_of_step else None,
            attempt=await asyncio.to_thread(self._ordinal, result) if isinstance(prepared.message, wire.Start) else 0,
        )

    def _ordinal(self, result: WriteResult) -> int:
        """Return which attempt of its run has started, from 1; 0 where a newer one exists."""
        newest = self._store.runs.list_attempts(result.run_id, access=EVERYTHING, limit=1).items
        return next((attempt.ordinal for attempt in newest if attempt.id == result.attempt_id), 0)

    def _advice(self, result: WriteResult) -> dict[str, Any] | None:
        """Return the advice after the newest closed step; None until the attempt's first step closes."""
        view = self._view_cache.get(result.run_id)
        if view is None or view.advice is None or view.row is None or view.row.key.attempt_id != result.attempt_id:
            return None
        return view.advice.document()

    async def _policy_update(self, message: wire.Message, run_id: int) -> wire.PolicyUpdate | None:
        """Return the run's policy if the sender uses, or is about to use, another one."""
        if isinstance(message, wire.Start) and message.policy is not None:
            await asyncio.to_thread(self._adopt, message.policy, run_id)
        elif not isinstance(message, wire.Report | wire.Start):
            return None
        version = self._policies.cached(run_id)
        if version is None:
            version = await asyncio.to_thread(self._policies.read, run_id)
        known = message.policy if isinstance(message, wire.Report) else None
        return None if version.policy.hash == known else policy_update_of(version)

    def _adopt(self, spec: dict[str, object], run_id: int) -> None:
        """Store the policy that a trainer requests at its start, before the start is acknowledged."""
        try:
            requested = Policy.parse(spec)
        except PolicyError:
            return
        version = version_from_trainer(self._store.policies.current(run_id), requested, now=time.time())
        if version is not None:
            self._store.policies.put(run_id, version).result()


def _conflict(prepared: PreparedMessage) -> str:
    message = prepared.message
    if isinstance(message, wire.Report):
        update = "" if message.update is None else f", update {message.update}"
        place = f"step {message.step}{update}, rank {message.rank}, chunk {message.chunk}"
    else:
        place = f"rank {message.rank}"
    return f"another payload is stored under attempt {message.attempt!r}, {place} of {prepared.key}"
