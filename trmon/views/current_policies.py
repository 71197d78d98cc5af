"""Caches the current policy of each run: every acknowledgement carries it."""

from __future__ import annotations

import time

from trmon.domain.model.access import EVERYTHING
from trmon.domain.model.errors import NotFound
from trmon.domain.model.identity import RunKey
from trmon.domain.policies import PolicyVersion, default_version
from trmon.store.repositories.policies import Policies
from trmon.store.repositories.runs import Runs
from trmon_client.core import wire

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
