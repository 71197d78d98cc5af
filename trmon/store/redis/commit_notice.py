"""News: what a process has committed, for the others to look at."""

from __future__ import annotations

import msgspec

MAX_RUNS = 10_000
"""Beyond it, news do not say which runs."""


class CommitNotice(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """Runs for which something came, and those that somebody changed; whether there is something to tell people.

    `missed` says that there may be more, so that everything is to be looked at.
    """

    touched: frozenset[int] = frozenset()
    edited: frozenset[int] = frozenset()
    addressed: bool = False
    missed: bool = False

    def and_then(self, later: CommitNotice) -> CommitNotice:
        """Return both together; too many runs are everything."""
        if self.missed or later.missed or len(self.touched) + len(later.touched) > MAX_RUNS:
            return CommitNotice(addressed=self.addressed or later.addressed, missed=True)
        return CommitNotice(
            touched=self.touched | later.touched,
            edited=self.edited | later.edited,
            addressed=self.addressed or later.addressed,
        )


class Envelope(msgspec.Struct, frozen=True, array_like=True):
    """News and the process they are from."""

    sender: str
    news: CommitNotice


_LETTER = msgspec.msgpack.Decoder(Envelope)


def encode_envelope(letter: Envelope) -> bytes:
    """Return a letter as bytes."""
    return msgspec.msgpack.encode(letter)


def decode_envelope(data: bytes) -> Envelope:
    """Return a letter. Errors: msgspec.MsgspecError for what is none, e.g. one of a later version."""
    return _LETTER.decode(data)
