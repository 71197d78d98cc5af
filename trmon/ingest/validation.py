"""Decodes and validates request bodies, and decides the sequences of a report if its client did not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

import msgspec

from trmon.domain.access import Access, Scope
from trmon.domain.errors import Forbidden, InvalidInput
from trmon.domain.identity import RunKey
from trmon.domain.messages import PreparedMessage
from trmon.domain.policies import DEFAULT_POLICY
from trmon.ingest.body_cost import ELEMENT_BYTES, Body, BodyCost, check_elements, count_elements
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
