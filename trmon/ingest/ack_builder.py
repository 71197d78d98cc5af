"""Build the acknowledgement of a stored message: its accepted bits, a changed policy, advice."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from trmon.domain.model.messages import PreparedMessage, WriteOutcome, WriteResult
from trmon.domain.policies import version_from_trainer
from trmon.store import Store
from trmon.views.current_policies import CurrentPolicies, policy_update_of
from trmon.views.run_view_cache import RunViewCache
from trmon_client.core import wire
from trmon_client.core.policies.policy import Policy
from trmon_client.core.policies.sequence_statistics import PolicyError


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
        return wire.Ack(
            status="stored" if result.status is WriteOutcome.STORED else "duplicate",
            accepted=result.accepted if is_report else None,
            policy=await self._policy_update(prepared.message, result.run_id),
            advice=self._advice(result) if is_report else None,
        )

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
