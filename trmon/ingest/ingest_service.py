"""Ingest messages: read a request's body, store its messages, acknowledge them once they are durable."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from concurrent.futures import Future

from trmon.domain.model.access import Access
from trmon.domain.model.errors import Conflict
from trmon.domain.model.identity import RunKey
from trmon.domain.model.messages import PreparedMessage, WriteOutcome, WriteResult
from trmon.ingest.ack_builder import AckBuilder
from trmon.ingest.batcher import Batcher
from trmon.ingest.body_reader import BodyReader
from trmon.ingest.ingest_counters import IngestCounters
from trmon.ingest.quota_gate import QuotaGate
from trmon.metrics.counters import Counters
from trmon.store import Store
from trmon.store.registry.registry_entries import ArrivedMessage
from trmon.views.current_policies import CurrentPolicies
from trmon.views.run_view_cache import RunViewCache
from trmon_client.core import wire


class IngestService:
    """Accepts one message or a bundle: read, queue in order, acknowledge when durable."""

    def __init__(
        self,
        store: Store,
        *,
        policies: CurrentPolicies,
        view_cache: RunViewCache,
        counters: Counters,
        quota_gate: QuotaGate,
    ) -> None:
        self._store = store
        self._quota_gate = quota_gate
        self._reader = BodyReader(lambda key: policies.read_by_key(key).policy)
        self._batcher = Batcher(store.reports)
        self._acks = AckBuilder(store, policies=policies, view_cache=view_cache)
        self._counters = IngestCounters(counters)

    async def ingest_message(self, body: bytes, *, media_type: str, key: RunKey) -> wire.Ack:
        """Store one message of a run. Errors: WireError; Conflict; QuotaExceeded; Overloaded."""
        prepared = await self._reader.read_message(body, media_type=media_type, key=key)
        (entry,) = await self._quota_gate.admit([prepared])
        if not isinstance(entry, PreparedMessage):
            raise entry
        (ack,) = await self._store_all([entry])
        if ack.status == "conflict":
            raise Conflict(ack.problem)
        return ack

    async def ingest_bundle(self, body: bytes, *, media_type: str, access: Access) -> wire.Acks:
        """Store a bundle; each invalid message gets an acknowledgement of its own. Errors: WireError; Overloaded."""
        entries = await self._quota_gate.admit(
            await self._reader.read_bundle(body, media_type=media_type, access=access)
        )
        acks = iter(await self._store_all([entry for entry in entries if isinstance(entry, PreparedMessage)]))
        return wire.Acks(
            [next(acks) if isinstance(entry, PreparedMessage) else self._refuse(entry) for entry in entries]
        )

    async def _store_all(self, messages: Sequence[PreparedMessage]) -> list[wire.Ack]:
        """Store messages, and return their acknowledgements in the same order."""
        durable = [prepared for prepared in messages if not _is_heartbeat(prepared)]
        futures = await self._batcher.append(durable) if durable else []
        self._touch([prepared for prepared in messages if _is_heartbeat(prepared)], now=time.time())
        results = iter([await _result_of(future) for future in futures])
        stored = [(prepared, None if _is_heartbeat(prepared) else next(results)) for prepared in messages]
        for prepared, result in stored:
            self._counters.count(prepared, result.status if result else WriteOutcome.STORED)
        return [
            await self._acks.build(prepared, result) if result else wire.Ack("stored") for prepared, result in stored
        ]

    def _touch(self, heartbeats: Sequence[PreparedMessage], *, now: float) -> None:
        if heartbeats:
            arrived = [ArrivedMessage(key=beat.key, message=beat.message, at=now) for beat in heartbeats]
            self._store.reports.touch(arrived)

    def _refuse(self, refusal: Exception) -> wire.Ack:
        self._counters.count_invalid()
        return wire.Ack("invalid", problem=str(refusal))


async def _result_of(future: Future[WriteResult]) -> WriteResult:
    """Return the same as asyncio.wrap_future, which takes twice as long to deliver the result."""
    if not future.done():
        loop = asyncio.get_running_loop()
        resolved = loop.create_future()
        future.add_done_callback(lambda _: loop.call_soon_threadsafe(_resolve, resolved))
        await resolved
    return future.result()


def _resolve(waiter: asyncio.Future[None]) -> None:
    """Resolve a future, unless its waiter was cancelled."""
    if not waiter.done():
        waiter.set_result(None)


def _is_heartbeat(prepared: PreparedMessage) -> bool:
    return isinstance(prepared.message, wire.Heartbeat)
