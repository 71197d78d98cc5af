"""Decode and validate request bodies: small ones on the event loop, the others on another thread."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from trmon.domain.model.access import Access, Scope
from trmon.domain.model.errors import Forbidden, InvalidInput
from trmon.domain.model.identity import RunKey
from trmon.domain.model.messages import PreparedMessage
from trmon.ingest.validate import PolicyOf, validate_message
from trmon_client.core import wire

INLINE_BYTES = 1 << 18
"""Largest body that is read on the event loop: reading it takes less time than starting another thread."""

Decoded = TypeVar("Decoded")
Validated = TypeVar("Validated")
Refusal = wire.WireError | InvalidInput | Forbidden
"""Why one message of a bundle is refused; the other messages are stored."""


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
            is_slow=_has_slow,
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


def _has_slow(bundle: Sequence[wire.Message | wire.WireError]) -> bool:
    return any(map(_is_slow, bundle))


def _is_slow(message: wire.Message | wire.WireError) -> bool:
    """A report without a decision may need a database read for its policy; a parcel of zeros may be huge inflated."""
    if not isinstance(message, wire.Report):
        return False
    return message.accepted is None or (message.parcel is not None and message.parcel.n_bytes > INLINE_BYTES)
