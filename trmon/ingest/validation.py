"""Decodes and validates request bodies, and decides the sequences of a report if its client did not."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import msgspec

from trmon.domain.access import Access, Scope
from trmon.domain.errors import Forbidden, InvalidInput
from trmon.domain.identity import RunKey
from trmon.domain.messages import PreparedMessage
from trmon.domain.policies import DEFAULT_POLICY
from trmon.store.rows import messages
from trmon_client.core import wire
from trmon_client.core.columns import Columns
from trmon_client.core.policies.decision import decide
from trmon_client.core.policies.policy import Policy, preset
from trmon_client.core.policies.sequence_statistics import PolicyError

PolicyOf = Callable[[RunKey], Policy]
"""Returns the current policy of a run, also for a run that does not exist yet."""
INLINE_BYTES = 1 << 18
"""Largest body that is read on the event loop: reading it takes less time than starting another thread."""
Decoded = TypeVar("Decoded")
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
    return wire.without_secrets(msgspec.structs.replace(message, **changed))


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
    """Turns request bodies into messages that are ready for the store."""

    def __init__(self, policy_of: PolicyOf) -> None:
        self._policy_of = policy_of

    async def read_message(self, body: bytes, *, media_type: str, key: RunKey) -> PreparedMessage:
        """Return the one message of a body. Errors: WireError."""
        return await _read(
            body,
            decode=partial(wire.decode, media_type=media_type),
            validate=partial(validate_message, key=key, policy_of=self._policy_of),
            is_slow=_is_slow,
        )

    async def read_bundle(self, body: bytes, *, media_type: str, access: Access) -> list[PreparedMessage | Refusal]:
        """Return the messages of a bundle in their order, or why each is refused. Errors: WireError."""
        return await _read(
            body,
            decode=partial(wire.decode_bundle, media_type=media_type),
            validate=lambda bundle: [self._validate(entry, access) for entry in bundle],
            is_slow=lambda bundle: any(map(_is_slow, bundle)),
        )

    def _validate(self, entry: wire.Message | wire.WireError, access: Access) -> PreparedMessage | Refusal:
        if isinstance(entry, wire.WireError):
            return entry
        try:
            key = RunKey.checked(entry.project, entry.run)
            access.require(Scope.INGEST, project=key.project)
            return validate_message(entry, key, policy_of=self._policy_of)
        except (wire.WireError, InvalidInput, Forbidden) as refusal:
            return refusal


async def _read(
    body: bytes,
    *,
    decode: Callable[[bytes], Decoded],
    validate: Callable[[Decoded], Validated],
    is_slow: Callable[[Decoded], bool],
) -> Validated:
    """Decode and validate a body, with at most one change of thread."""
    if len(body) > INLINE_BYTES:
        return await asyncio.to_thread(lambda: validate(decode(body)))
    decoded = decode(body)
    return await asyncio.to_thread(validate, decoded) if is_slow(decoded) else validate(decoded)


def _is_slow(message: wire.Message | wire.WireError) -> bool:
    """A report without a decision may need a database read for its policy; a parcel of zeros may be huge inflated."""
    if not isinstance(message, wire.Report):
        return False
    return message.accepted is None or (message.parcel is not None and message.parcel.n_bytes > INLINE_BYTES)
