"""Ingests messages: decodes and validates bodies, stores messages and acknowledges them once they are durable."""

from __future__ import annotations

import asyncio
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from threading import Lock
from typing import Any, TypeVar

import msgspec

from trmon.domain.access import Access, Scope
from trmon.domain.errors import Conflict, Forbidden, InvalidInput
from trmon.domain.identity import RunKey
from trmon.domain.messages import PreparedMessage, WriteOutcome, WriteResult
from trmon.domain.policies import DEFAULT_POLICY
from trmon.fleet.views import RunViewCache
from trmon.ingest.acknowledgement import AckBuilder, CurrentPolicies
from trmon.ingest.body_cost import ELEMENT_BYTES, Body, BodyCost, check_elements, count_elements
from trmon.ingest.quotas import QuotaGate
from trmon.metrics.counters import DROPPED, Counters
from trmon.store import Store
from trmon.store.registry import ArrivedMessage
from trmon.store.repositories.reports import Reports
from trmon.store.rows import messages
from trmon_client.core import wire
from trmon_client.core.columns import Columns
from trmon_client.core.policies.decision import decide
from trmon_client.core.policies.policy import Policy, preset
from trmon_client.core.policies.sequence_statistics import PolicyError

PolicyOf = Callable[[RunKey], Policy]
"""Returns the current policy of a run, also for a run that does not exist yet."""
INLINE_BYTES = 1 << 18
INLINE_ELEMENTS = 1 << 14
INLINE_UNPACKED_BYTES = 1 << 20
"""Largest body, with its elements and its unpacked columns, that is read on the event loop: it takes milliseconds."""
PIECE_UNPACKED_BYTES = 8 << 20
"""Most bytes of columns that a thread unpacks in one turn, unless one report has more."""
MAX_UNPACKED_BYTES = 128 << 20
"""Above the largest columns and turns that a report may have."""
Decoded = TypeVar("Decoded")
Entry = TypeVar("Entry")
Validated = TypeVar("Validated")
Refusal = wire.WireError | InvalidInput | Forbidden
"""Why one message of a bundle is refused; the other messages are stored."""


def canonical_message(message: wire.Message, key: RunKey) -> wire.Message:
    """Return a message without secrets that names its run, with its numbers as floats sorted by name."""
    changed: dict[str, Any] = {"project": key.project, "run": key.run}
    if isinstance(message, wire.Report):
        changed["scalars"] = _numbers(message.scalars)
    elif isinstance(message, wire.Scalars):
        changed["values"] = _numbers(message.values)
    return wire.with_safe_texts(msgspec.structs.replace(message, **changed))


def _numbers(scalars: dict[str, wire.JsonNumber]) -> dict[str, wire.JsonNumber]:
    return {name: wire.wire_number(scalars[name]) + 0.0 for name in sorted(scalars)}


def validate_message(message: wire.Message, key: RunKey, *, policy_of: PolicyOf) -> PreparedMessage:
    """Return a message ready for the store. Errors: WireError naming the invalid column."""
    message = canonical_message(message, key)
    if isinstance(message, wire.Report):
        return _prepare_report(message, key, policy_of=policy_of)
    if isinstance(message, wire.Heartbeat):
        return PreparedMessage(key=key, message=message, digest=b"", payload=b"")
    return PreparedMessage(
        key=key, message=message, digest=messages.message_digest(message), payload=messages.pack_notice(message)
    )


def _prepare_report(report: wire.Report, key: RunKey, *, policy_of: PolicyOf) -> PreparedMessage:
    parcel, n_tokens = wire.storable_columns(report)
    summary = msgspec.structs.replace(report, columns={}, histograms={}, parcel=None)
    stored, accepted = summary, report.accepted
    if accepted is None:
        policy, accepted = _decide(wire.columns_of_packed(summary, parcel), policy_of(key))
        stored = msgspec.structs.replace(summary, policy=policy.hash)
    return PreparedMessage(
        key=key,
        message=summary,
        digest=messages.report_digest(summary, parcel=parcel),
        payload=messages.pack_report(stored, parcel=parcel),
        n_sequences=parcel.n_sequences,
        n_tokens=n_tokens,
        accepted=accepted,
    )


def _decide(columns: Columns, policy: Policy) -> tuple[Policy, bytes]:
    """Return a policy and its accepted bits; the default policy if the columns lack what the policy needs."""
    try:
        return policy, wire.pack_bits(decide(columns, policy).accepted)
    except PolicyError:
        default = preset(DEFAULT_POLICY)
        return default, wire.pack_bits(decide(columns, default).accepted)


class BodyReader:
    """Turns request bodies into messages that are ready for the store.

    What takes longer than starting another thread is done by the threads of costly bodies, in the caller's turn.
    """

    def __init__(self, policy_of: PolicyOf, *, is_cached: Callable[[RunKey], bool]) -> None:
        self._policy_of = policy_of
        self._is_cached = is_cached

    async def read_message(self, body: Body, *, media_type: str, key: RunKey, cost: BodyCost) -> PreparedMessage:
        """Return the one message of a body. Errors: WireError, TooLarge, Overloaded."""
        message = await _decoded(body, wire.decode, media_type=media_type, cost=cost)
        (prepared,) = await _validated(
            [message],
            lambda one: validate_message(one, key, policy_of=self._policy_of),
            cost=cost,
            waits=self._waits_for_policy(message, key),
        )
        return prepared

    async def read_bundle(
        self, body: Body, *, media_type: str, access: Access, cost: BodyCost
    ) -> list[PreparedMessage | Refusal]:
        """Return the messages of a bundle in their order, or why each is refused.

        Errors: WireError, TooLarge, Overloaded.
        """
        bundle = await _decoded(body, wire.decode_bundle, media_type=media_type, cost=cost)
        waits = any(
            self._waits_for_policy(entry, RunKey(entry.project, entry.run))
            for entry in bundle
            if not isinstance(entry, wire.WireError)
        )
        return await _validated(bundle, lambda entry: self._validate(entry, access), cost=cost, waits=waits)

    def _waits_for_policy(self, message: wire.Message, key: RunKey) -> bool:
        """Return whether validating needs the run's policy, which has to be read from the database."""
        return isinstance(message, wire.Report) and message.accepted is None and not self._is_cached(key)

    def _validate(self, entry: wire.Message | wire.WireError, access: Access) -> PreparedMessage | Refusal:
        if isinstance(entry, wire.WireError):
            return entry
        try:
            key = RunKey.checked(entry.project, entry.run)
            access.require(Scope.INGEST, project=key.project)
            return validate_message(entry, key, policy_of=self._policy_of)
        except (wire.WireError, InvalidInput, Forbidden) as refusal:
            return refusal


async def _decoded(body: Body, decode: Callable[..., Decoded], *, media_type: str, cost: BodyCost) -> Decoded:
    """Decode a body once its elements are counted and, unless they are few, their memory is reserved."""
    if len(body) <= INLINE_BYTES:
        n_elements = count_elements(body, media_type=media_type, at_most=INLINE_ELEMENTS)
        if n_elements <= INLINE_ELEMENTS:
            return decode(body, media_type=media_type)

    def count_and_decode() -> Decoded:
        n_elements = count_elements(body, media_type=media_type)
        check_elements(n_elements)
        cost.count(n_elements=n_elements)
        cost.hold(len(body) + n_elements * ELEMENT_BYTES)
        return decode(body, media_type=media_type)

    return await cost.run(count_and_decode)


async def _validated(
    entries: Sequence[Entry], validate: Callable[[Entry], Validated], *, cost: BodyCost, waits: bool
) -> list[Validated]:
    """Validate messages, by a thread if one waits or their columns are large.

    Large ones are validated in pieces, each of which reserves the memory that it unpacks them into.
    """
    sizes = [_unpacked_bytes(entry) for entry in entries]
    if sum(sizes) <= INLINE_UNPACKED_BYTES and not waits:
        return list(map(validate, entries))
    found: list[Validated] = []
    while len(found) < len(entries):
        start, end, n_bytes = len(found), len(found), 0
        while end < len(entries) and (end == start or n_bytes + sizes[end] <= PIECE_UNPACKED_BYTES):
            n_bytes += sizes[end]
            end += 1

        def validate_piece(part: Sequence[Entry], n_bytes: int) -> list[Validated]:
            with cost.holding(2 * n_bytes):
                return list(map(validate, part))

        cost.count(n_bytes=n_bytes)
        found += await cost.run(partial(validate_piece, entries[start:end], n_bytes))
    return found


def _unpacked_bytes(entry: object) -> int:
    """Return the size of a report's unpacked columns, as it states it; larger ones are refused before."""
    return min(wire.unpacked_bytes(entry), MAX_UNPACKED_BYTES) if isinstance(entry, wire.Report) else 0


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
        for appended, queued in pending:
            own = [next(futures) for _ in appended]
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
