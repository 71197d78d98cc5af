"""The current policy of each run, remembered for a moment: every acknowledgement asks for it."""

from __future__ import annotations

import time

from trmon.domain.access import EVERYTHING
from trmon.domain.errors import NotFound
from trmon.domain.identity import RunKey
from trmon.domain.policies import PolicyVersion, default_version
from trmon.store.policies import Policies
from trmon.store.runs import Runs
from trmon_client.core import wire

REMEMBERED_SECONDS = 1.0
"""How long a policy change made by another thread or process may go unnoticed; updates are best effort."""
MAX_REMEMBERED = 10_000


class CurrentPolicies:
    """Policies by run; may be called from any thread."""

    def __init__(self, policies: Policies, runs: Runs) -> None:
        self._policies = policies
        self._runs = runs
        self._remembered: dict[int | RunKey, tuple[PolicyVersion, float]] = {}

    def remembered(self, run: int | RunKey) -> PolicyVersion | None:
        """Return the run's policy if it was read a moment ago; never waits for the store."""
        version, at = self._remembered.get(run, (None, 0.0))
        return version if time.monotonic() - at < REMEMBERED_SECONDS else None

    def read(self, run_id: int) -> PolicyVersion:
        """Return the run's policy, from the store if need be. Errors: NotFound."""
        return self.remembered(run_id) or self._remember(run_id, self._policies.current(run_id))

    def read_named(self, key: RunKey) -> PolicyVersion:
        """Return the policy of a run by its name, the default one if there is no such run yet."""
        version = self.remembered(key)
        if version is not None:
            return version
        try:
            return self._remember(key, self.read(self._runs.get(key, access=EVERYTHING).id))
        except NotFound:
            return default_version(now=time.time())

    def forget(self, run: int | RunKey) -> None:
        """Read the run's policy anew: it was changed here."""
        self._remembered.pop(run, None)

    def _remember(self, run: int | RunKey, version: PolicyVersion) -> PolicyVersion:
        if len(self._remembered) >= MAX_REMEMBERED:
            self._remembered.clear()
        self._remembered[run] = (version, time.monotonic())
        return version


def update_of(version: PolicyVersion) -> wire.PolicyUpdate:
    """Return a policy version as trainers hear of it."""
    return wire.PolicyUpdate(
        hash=version.policy.hash,
        spec=version.policy.spec(),
        shadows=[shadow.spec() for shadow in version.shadows],
        from_step=version.from_step,
    )
