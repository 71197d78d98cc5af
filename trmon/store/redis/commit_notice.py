"""The notice that a process publishes after a commit: which runs changed."""

from __future__ import annotations

import msgspec

MAX_RUNS = 10_000
"""Above this number of runs, a notice does not name them."""


class CommitNotice(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """The runs with new messages and the edited runs of a commit, and whether it added deliveries.

    `missed` means that there may be more changes, so that the receiver must poll everything.
    """

    touched: frozenset[int] = frozenset()
    edited: frozenset[int] = frozenset()
    has_deliveries: bool = False
    missed: bool = False

    def merge(self, later: CommitNotice) -> CommitNotice:
        """Return one notice for both; with too many runs it is `missed`."""
        has_deliveries = self.has_deliveries or later.has_deliveries
        if self.missed or later.missed or len(self.touched) + len(later.touched) > MAX_RUNS:
            return CommitNotice(has_deliveries=has_deliveries, missed=True)
        return CommitNotice(
            touched=self.touched | later.touched,
            edited=self.edited | later.edited,
            has_deliveries=has_deliveries,
        )


class Envelope(msgspec.Struct, frozen=True, array_like=True):
    """A notice and the process that sent it."""

    process_id: str
    notice: CommitNotice


_ENVELOPE = msgspec.msgpack.Decoder(Envelope)


def encode_envelope(envelope: Envelope) -> bytes:
    """Return an envelope as bytes."""
    return msgspec.msgpack.encode(envelope)


def decode_envelope(data: bytes) -> Envelope:
    """Return an envelope. Errors: msgspec.MsgspecError for other data, such as that of a later version."""
    return _ENVELOPE.decode(data)
