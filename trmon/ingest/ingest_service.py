"""Reception: from a request's body to answers that are given only after what they acknowledge is on the disk."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from trmon.domain.model.access import Access, Scope
from trmon.domain.model.errors import Conflict, Forbidden, InvalidInput
from trmon.domain.model.identity import RunKey
from trmon.domain.model.messages import PreparedMessage, WriteOutcome, WriteResult
from trmon.domain.policies.policy_version import asked_by_trainer
from trmon.ingest.batcher import Batcher
from trmon.ingest.client_losses import ClientLosses
from trmon.ingest.validate import validate_message
from trmon.metrics.counters import Counters
from trmon.store import Store
from trmon.store.registry.registry_entries import ArrivedMessage
from trmon.views.current_policies import CurrentPolicies, policy_update_of
from trmon.views.run_view_cache import RunViewCache
from trmon_client.core import wire
from trmon_client.core.policies.acceptance import Policy, PolicyError

INLINE_BYTES = 1 << 18
"""Up to it a body is prepared on the event loop: in less time than another thread would take to begin."""

Bundle = Sequence[wire.Message | wire.WireError]
"""Messages in one request, those that could not be read as their errors."""
Refusal = wire.WireError | InvalidInput | Forbidden
"""Why one message of a bundle cannot be accepted; the others are."""


@dataclass(frozen=True, slots=True)
class AnsweredMessage:
    """A message that passed the checks, with what the disk said of it; None for a heartbeat."""

    intake: PreparedMessage
    receipt: WriteResult | None


class IngestService:
    """Takes messages in: prepared, large ones off the event loop; queued in order, answered when durable."""

    def __init__(self, store: Store, *, policies: CurrentPolicies, live: RunViewCache, counters: Counters) -> None:
        self._store = store
        self._live = live
        self._policies = policies
        self._counters = counters
        self._losses = ClientLosses()
        self._gathering = Batcher(store.reports)
        # Looking a label up costs more than to count.
        self._by_status = {status: counters.reports.labels(status.value) for status in WriteOutcome}
        self._accepted, self._rejected = map(counters.sequences.labels, ("accepted", "rejected"))

    async def one(self, body: bytes, *, media_type: str, key: RunKey) -> wire.Ack:
        """Take one message of a run in. Errors: WireError; Conflict; Overloaded."""
        if len(body) > INLINE_BYTES:
            intake = await asyncio.to_thread(self._read_one, body, media_type, key)
        else:
            intake = await self._prepare(wire.decode(body, media_type=media_type), key)
        answered = (await self._take_in([intake]))[0]
        ack = await self._acknowledge(answered)
        if ack.status == "conflict":
            raise Conflict(ack.problem)
        return ack

    async def many(self, body: bytes, *, media_type: str, access: Access) -> wire.Acks:
        """Take a bundle in; what is wrong with one message is its own answer. Errors: WireError; Overloaded."""
        if len(body) > INLINE_BYTES:
            read = await asyncio.to_thread(self._read_many, body, media_type, access)
        else:
            read = await self._read_here(wire.decode_bundle(body, media_type=media_type), access)
        answered = iter(await self._take_in([found for found in read if isinstance(found, PreparedMessage)]))
        return wire.Acks(
            [
                await self._acknowledge(next(answered)) if isinstance(found, PreparedMessage) else self._refuse(found)
                for found in read
            ]
        )

    async def _prepare(self, message: wire.Message, key: RunKey) -> PreparedMessage:
        if _takes_long(message):
            return await asyncio.to_thread(validate_message, message, key, policy_of=self._policy_of)
        return validate_message(message, key, policy_of=self._policy_of)

    async def _read_here(self, bundle: Bundle, access: Access) -> list[PreparedMessage | Refusal]:
        if any(map(_takes_long, bundle)):
            return await asyncio.to_thread(self._read_each, bundle, access)
        return self._read_each(bundle, access)

    def _read_one(self, body: bytes, media_type: str, key: RunKey) -> PreparedMessage:
        return validate_message(wire.decode(body, media_type=media_type), key, policy_of=self._policy_of)

    def _read_many(self, body: bytes, media_type: str, access: Access) -> list[PreparedMessage | Refusal]:
        return self._read_each(wire.decode_bundle(body, media_type=media_type), access)

    def _read_each(self, bundle: Bundle, access: Access) -> list[PreparedMessage | Refusal]:
        return [self._read(found, access) for found in bundle]

    def _read(self, found: wire.Message | wire.WireError, access: Access) -> PreparedMessage | Refusal:
        if isinstance(found, wire.WireError):
            return found
        try:
            key = RunKey.checked(found.project, found.run)
            access.require(Scope.INGEST, project=key.project)
            return validate_message(found, key, policy_of=self._policy_of)
        except (wire.WireError, InvalidInput, Forbidden) as refusal:
            return refusal

    async def _take_in(self, intakes: Sequence[PreparedMessage]) -> list[AnsweredMessage]:
        durable = [intake for intake in intakes if not _is_heartbeat(intake)]
        futures = await self._gathering.append(durable) if durable else []
        self._touch([intake for intake in intakes if _is_heartbeat(intake)], now=time.time())
        receipts = iter([await _resolved(future) for future in futures])
        answered = [AnsweredMessage(intake, None if _is_heartbeat(intake) else next(receipts)) for intake in intakes]
        self._count(answered)
        return answered

    def _touch(self, beats: Sequence[PreparedMessage], *, now: float) -> None:
        if beats:
            self._store.reports.touch([ArrivedMessage(key=beat.key, message=beat.message, at=now) for beat in beats])

    async def _acknowledge(self, answered: AnsweredMessage) -> wire.Ack:
        message, receipt = answered.intake.message, answered.receipt
        if receipt is None:
            return wire.Ack("stored")
        if receipt.status is WriteOutcome.CONFLICT:
            return wire.Ack("conflict", problem=_conflict(answered.intake))
        return wire.Ack(
            status="stored" if receipt.status is WriteOutcome.STORED else "duplicate",
            accepted=receipt.accepted if isinstance(message, wire.Report) else None,
            policy=await self._policy_update(answered.intake, receipt),
            advice=self._advice(receipt) if isinstance(message, wire.Report) else None,
        )

    def _advice(self, receipt: WriteResult) -> dict[str, Any] | None:
        """Return what is advised after the newest closed step; nothing after a restart, until its first one closes."""
        view = self._live.get(receipt.run_id)
        if view is None or view.advice is None or view.row is None or view.row.key.attempt_id != receipt.attempt_id:
            return None
        return view.advice.document()

    async def _policy_update(self, intake: PreparedMessage, receipt: WriteResult) -> wire.PolicyUpdate | None:
        """Return the run's policy where the sender decides, or is about to decide, with another."""
        message = intake.message
        if isinstance(message, wire.Start) and message.policy is not None:
            await asyncio.to_thread(self._adopt, message.policy, receipt.run_id)
        elif not isinstance(message, wire.Report | wire.Start):
            return None
        version = self._policies.remembered(receipt.run_id)
        if version is None:
            version = await asyncio.to_thread(self._policies.read, receipt.run_id)
        known = message.policy if isinstance(message, wire.Report) else None
        return None if version.policy.hash == known else policy_update_of(version)

    def _adopt(self, spec: dict[str, object], run_id: int) -> None:
        """Make the policy a trainer asks for the run's, before its start is answered with another one."""
        try:
            wish = Policy.parse(spec)
        except PolicyError:
            return
        version = asked_by_trainer(self._store.policies.current(run_id), wish, now=time.time())
        if version is not None:
            self._store.policies.put(run_id, version).result()

    def _policy_of(self, key: RunKey) -> Policy:
        return self._policies.read_named(key).policy

    def _refuse(self, refusal: Refusal) -> wire.Ack:
        self._counters.reports.labels("invalid").inc()
        return wire.Ack("invalid", problem=str(refusal))

    def _count(self, answered: Sequence[AnsweredMessage]) -> None:
        for one in answered:
            status = one.receipt.status if one.receipt else WriteOutcome.STORED
            self._by_status[status].inc()
            for reason, n in self._losses.grown(one.intake.key, one.intake.message).items():
                self._counters.dropped.labels(reason).inc(n)
            if status is WriteOutcome.STORED and one.intake.n_sequences:
                n_accepted = _n_set(one.intake.accepted, one.intake.n_sequences)
                self._accepted.inc(n_accepted)
                self._rejected.inc(one.intake.n_sequences - n_accepted)


async def _resolved(future: Future[WriteResult]) -> WriteResult:
    """Return the same as asyncio.wrap_future, which takes twice as long to carry the result over."""
    if not future.done():
        loop = asyncio.get_running_loop()
        resolved = loop.create_future()
        future.add_done_callback(lambda _: loop.call_soon_threadsafe(_end, resolved))
        await resolved
    return future.result()


def _end(waited_for: asyncio.Future[None]) -> None:
    """End a future, unless whoever waited has gone."""
    if not waited_for.done():
        waited_for.set_result(None)


def _n_set(bits: bytes, n: int) -> int:
    """Return how many of the first n bits are set, of the little-endian bits of the wire."""
    return (int.from_bytes(bits, "little") & ((1 << n) - 1)).bit_count()


def _takes_long(message: wire.Message | wire.WireError) -> bool:
    """A report without a decision needs the run's policy, which may have to be read; a parcel may be full of zeros."""
    if not isinstance(message, wire.Report):
        return False
    return message.accepted is None or (message.parcel is not None and message.parcel.n_bytes > INLINE_BYTES)


def _is_heartbeat(intake: PreparedMessage) -> bool:
    return isinstance(intake.message, wire.Heartbeat)


def _conflict(intake: PreparedMessage) -> str:
    message = intake.message
    if isinstance(message, wire.Report):
        update = "" if message.update is None else f", update {message.update}"
        place = f"step {message.step}{update}, rank {message.rank}, chunk {message.chunk}"
    else:
        place = f"rank {message.rank}"
    return f"another payload stands under attempt {message.attempt!r}, {place} of {intake.key}"
