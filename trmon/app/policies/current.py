"""The current policy of each run, remembered for a moment: every acknowledgement asks for it."""

from __future__ import annotations

import time
from typing import Protocol

from trmon.domain.policies import PolicyVersion
from trmon_client.core import wire

REMEMBERED_SECONDS = 1.0
"""How long a policy change made by another thread or process may go unnoticed; updates are best effort."""
MAX_REMEMBERED = 10_000


class Policies(Protocol):
    """What is asked of the store."""

    def current(self, run_id: int) -> PolicyVersion:
        """Return the run's current policy version."""


class CurrentPolicies:
    """Policies by run; may be called from any thread."""

    def __init__(self, policies: Policies) -> None:
        self._policies = policies
        self._remembered: dict[int, tuple[PolicyVersion, float]] = {}

    def remembered(self, run_id: int) -> PolicyVersion | None:
        """Return the run's policy if it was read a moment ago; never waits for the store."""
        version, at = self._remembered.get(run_id, (None, 0.0))
        return version if time.monotonic() - at < REMEMBERED_SECONDS else None

    def read(self, run_id: int) -> PolicyVersion:
        """Return the run's policy, from the store if need be."""
        version = self.remembered(run_id)
        if version is None:
            version = self._policies.current(run_id)
            if len(self._remembered) >= MAX_REMEMBERED:
                self._remembered.clear()
            self._remembered[run_id] = (version, time.monotonic())
        return version

    def forget(self, run_id: int) -> None:
        """Read the run's policy anew: it was changed here."""
        self._remembered.pop(run_id, None)


def update_of(version: PolicyVersion) -> wire.PolicyUpdate:
    """Return a policy version as trainers hear of it."""
    return wire.PolicyUpdate(
        hash=version.policy.hash,
        spec=version.policy.spec(),
        shadows=[shadow.spec() for shadow in version.shadows],
        from_step=version.from_step,
    )
