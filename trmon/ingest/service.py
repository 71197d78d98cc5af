"""Ingests messages: reads a body, stores its messages, counts them, and acknowledges them once they are durable."""

from __future__ import annotations

import asyncio
import time
from collections import Counter, OrderedDict
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from threading import Lock

from trmon.domain.access import Access
from trmon.domain.errors import Conflict
from trmon.domain.identity import RunKey
from trmon.domain.messages import PreparedMessage, WriteOutcome, WriteResult
from trmon.fleet.views import RunViewCache
from trmon.ingest.acknowledgement import AckBuilder, CurrentPolicies
from trmon.ingest.body_cost import Body, BodyCost
from trmon.ingest.quotas import QuotaGate
from trmon.ingest.validation import BodyReader
from trmon.metrics.counters import DROPPED, Counters
from trmon.store import Store
from trmon.store.registry import ArrivedMessage
from trmon.store.repositories.reports import Reports
from trmon_client.core import wire

WriteFutures = list[Future[WriteResult]]
PendingAppend = tuple[Sequence[PreparedMessage], asyncio.Future[WriteFutures]]
"""The messages of one caller, and the future that resolves once they are queued."""
MAX_SENDERS = 100_000
LossSender = tuple[RunKey, str, int]
"""A run, a launch and its rank."""


class Batcher:
    """Collects messages and queues them at the end of the current turn; for one event loop."""

    def __init__(self, reports: Reports) -> None:
        self._reports = reports
        self._pending: list[PendingAppend] = []

    async def append(self, messages: Sequence[PreparedMessage]) -> WriteFutures:
        """Queue messages as `Reports.append` does, together with all others of this turn of the loop."""
        loop = asyncio.get_running_loop()
        if not self._pending:
            loop.call_soon(self._flush)
        queued: asyncio.Future[WriteFutures] = loop.create_future()
        self._pending.append((messages, queued))
        return await queued

    def _flush(self) -> None:
        pending, self._pending = self._pending, []
        self._queue(pending)

    def _queue(self, pending: Sequence[PendingAppend]) -> None:
        """Queue all messages together; if that is refused, each caller's alone, because some may still fit."""
        try:
            futures = iter(self._reports.append([one for messages, _ in pending for one in messages], now=time.time()))
        except Exception as error:  # noqa: BLE001 - a callback's edge: the caller receives the error
            if len(pending) > 1:
                for one in pending:
                    self._queue([one])
            elif not (queued := pending[0][1]).done():
                queued.set_exception(error)
            return
        for messages, queued in pending:
            own = [next(futures) for _ in messages]
            if not queued.done():
                queued.set_result(own)


class ClientLosses:
    """Keeps the latest counters of each sender; thread-safe."""

    def __init__(self) -> None:
        self._latest: OrderedDict[LossSender, dict[str, int]] = OrderedDict()
        self._lock = Lock()

    def increases(self, key: RunKey, message: wire.Message) -> Mapping[str, int]:
        """Return the increase of each reason since the sender's last message; never negative."""
        losses = getattr(message, "losses", None)
        if losses is None or not losses.dropped:
            return {}
        sender = (key, message.launch, message.rank)
        with self._lock:
            reported: Counter[str] = Counter()
            for reason, n in losses.dropped.items():
                # Each reason becomes a label, and clients may name any.
                reported[reason if reason in DROPPED else "other"] += n
            before = self._latest.pop(sender, {})
            latest = {reason: max(n, before.get(reason, 0)) for reason, n in reported.items()}
            self._latest[sender] = before | latest
            if len(self._latest) > MAX_SENDERS:
                self._latest.popitem(last=False)
        return +Counter({reason: n - before.get(reason, 0) for reason, n in latest.items()})


class IngestCounters:
    """Updates the service's counters for each message."""

    def __init__(self, counters: Counters) -> None:
        self._dropped = counters.dropped
        self._losses = ClientLosses()
        # Looking up a label costs more than counting.
        self._by_outcome = {outcome: counters.reports.labels(outcome.value) for outcome in WriteOutcome}
        self.invalid = counters.reports.labels("invalid")
        """Messages of bundles that were refused."""
        self._accepted, self._rejected = map(counters.sequences.labels, ("accepted", "rejected"))

    def count(self, prepared: PreparedMessage, outcome: WriteOutcome) -> None:
        """Count a message by what the store did with it."""
        self._by_outcome[outcome].inc()
        for reason, n in self._losses.increases(prepared.key, prepared.message).items():
            self._dropped.labels(reason).inc(n)
        if outcome is WriteOutcome.STORED and prepared.n_sequences:
            n_accepted = _count_bits(prepared.accepted, prepared.n_sequences)
            self._accepted.inc(n_accepted)
            self._rejected.inc(prepared.n_sequences - n_accepted)


def _count_bits(bits: bytes, n: int) -> int:
    """Return how many of the first n bits are set; the wire's bits are little-endian."""
    return (int.from_bytes(bits, "little") & ((1 << n) - 1)).bit_count()


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
        self._reader = BodyReader(lambda key: policies.read_by_key(key).policy, is_cached=policies.is_cached)
        self._batcher = Batcher(store.reports)
        self._acks = AckBuilder(store, policies=policies, view_cache=view_cache)
        self._counters = IngestCounters(counters)

    async def ingest_message(
        self, body: Body, *, media_type: str, key: RunKey, access: Access, cost: BodyCost
    ) -> wire.Ack:
        """Store one message of a run. Errors: WireError; TooLarge; Conflict; QuotaExceeded; Overloaded."""
        prepared = await self._reader.read_message(body, media_type=media_type, key=key, cost=cost)
        (entry,) = await self._quota_gate.admit([prepared], access=access)
        if not isinstance(entry, PreparedMessage):
            raise entry
        (ack,) = await self._store_all([entry])
        if ack.status == "conflict":
            raise Conflict(ack.problem)
        return ack

    async def ingest_bundle(self, body: Body, *, media_type: str, access: Access, cost: BodyCost) -> wire.Acks:
        """Store a bundle; an invalid message gets its own acknowledgement. Errors: WireError; TooLarge; Overloaded."""
        entries = await self._quota_gate.admit(
            await self._reader.read_bundle(body, media_type=media_type, access=access, cost=cost), access=access
        )
        acks = iter(await self._store_all([entry for entry in entries if isinstance(entry, PreparedMessage)]))
        return wire.Acks(
            [next(acks) if isinstance(entry, PreparedMessage) else self._refuse(entry) for entry in entries]
        )

    async def _store_all(self, messages: Sequence[PreparedMessage]) -> list[wire.Ack]:
        """Store messages, and return their acknowledgements in the same order."""
        durable = [prepared for prepared in messages if not _is_heartbeat(prepared)]
        futures = await self._batcher.append(durable) if durable else []
        now = time.time()
        beats = [ArrivedMessage(key=one.key, message=one.message, at=now) for one in messages if _is_heartbeat(one)]
        if beats:
            self._store.reports.touch(beats)
        results = iter([await _result_of(future) for future in futures])
        stored = [(prepared, None if _is_heartbeat(prepared) else next(results)) for prepared in messages]
        for prepared, result in stored:
            self._counters.count(prepared, result.status if result else WriteOutcome.STORED)
        return [
            await self._acks.build(prepared, result) if result else wire.Ack("stored") for prepared, result in stored
        ]

    def _refuse(self, refusal: Exception) -> wire.Ack:
        self._counters.invalid.inc()
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
