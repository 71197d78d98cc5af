"""How a run ended, and what its trainer's calls get wrong: what its own processes reported."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from trmon_client.core import wire
from trmon_client.core.wire.decodable_types import decodable

MAX_WARNINGS = 16
MAX_WARNING_LENGTH = 500
MAX_SUMMARY_LENGTH = 300
NO_EXIT = "no exit was seen: it was killed, it hangs, or its machine is gone"
"""What is known of the end of a run that fell silent."""


@decodable
class RunEnding(msgspec.Struct, frozen=True, kw_only=True):
    """The end that a process of the trainer reported, at a time on the server's clock.

    `reason` is a value of EndReason, empty for a client that does not send it; `error` is one line.
    """

    at: float
    rank: int = 0
    reason: str = ""
    error: str = ""
    traceback: str = ""
    exit_code: int | None = None
    signal: str = ""

    @classmethod
    def of(cls, message: wire.Finish, *, at: float) -> RunEnding:
        """Return the end in a finish message."""
        return cls(
            at=at,
            rank=message.rank,
            reason=message.reason,
            error=message.error,
            traceback=message.traceback,
            exit_code=message.exit_code,
            signal=message.signal,
        )

    @property
    def phrase(self) -> str:
        """The end in a few words, such as `ended by SIGTERM`; empty if the client did not say."""
        where = f" on rank {self.rank}" if self.rank else ""
        match self.reason:
            case wire.EndReason.EXITED.value:
                return "ended, close() not called"
            case wire.EndReason.SIGNAL.value:
                return f"ended by {self.signal or 'a signal'}{where}"
            case _ if self.error:
                return f"{' '.join(self.error.split())[:MAX_SUMMARY_LENGTH]}{where}"
            case reason:
                return reason


@decodable
class RunWarning(msgspec.Struct, frozen=True, kw_only=True):
    """A mistake in the trainer's calls, by its kind, first reported at a time on the server's clock."""

    kind: str
    text: str
    at: float


def with_new_warnings(
    known: tuple[RunWarning, ...], reported: Mapping[str, str], *, at: float
) -> tuple[RunWarning, ...]:
    """Return the known warnings and the reported ones of other kinds, MAX_WARNINGS at most."""
    kinds = {warning.kind for warning in known}
    new = [
        RunWarning(kind=kind[:MAX_WARNING_LENGTH], text=text[:MAX_WARNING_LENGTH], at=at)
        for kind, text in sorted(reported.items())
        if kind[:MAX_WARNING_LENGTH] not in kinds
    ]
    return (*known, *new)[:MAX_WARNINGS]
