"""The messages that make a run of a log: those of a trainer that logs scalars.

Their sequence numbers are digests of their content, and an attempt has the digest of its first step or of its writer as
its name. The same log gives the same messages, a longer one gives more of them, and the service keeps one of each.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b
from itertools import islice
from typing import Any, TypeAlias

import msgspec

from trmon.domain.analysis.logged_steps import LoggedStep
from trmon.domain.identity import RunKey
from trmon_client.core import wire

RunMessage: TypeAlias = wire.Start | wire.Scalars | wire.Finish
SEQUENCE_BYTES = 7
"""A sequence number is below 2**62."""


class LogMessages:
    """Makes the messages of a run. Args: config: what to tell of the run at its start."""

    def __init__(self, key: RunKey, *, config: dict[str, Any]) -> None:
        self._key = key
        self._config = config
        self._attempt: int | None = None
        self._origin: dict[str, Any] = {}
        self._n_steps = 0

    def of_step(self, step: LoggedStep) -> Iterator[RunMessage]:
        """Yield the scalars of a step, after the start of its attempt if it is the first."""
        if step.attempt != self._attempt:
            self._attempt = step.attempt
            name = _attempt_name(step)
            self._origin = {"project": self._key.project, "run": self._key.run, "attempt": name, "launch": name}
            yield wire.Start(**self._origin, sent_at=step.logged_at, config=self._config, client="trmon import")
        self._n_steps += 1
        names = iter(sorted(step.scalars))
        while some := list(islice(names, wire.MAX_SCALARS)):
            values: dict[str, wire.JsonNumber] = {name: step.scalars[name] for name in some}
            sequence = _digest(step.step, sorted(values.items()))
            yield wire.Scalars(**self._origin, sent_at=step.logged_at, sequence=sequence, step=step.step, values=values)

    def at_end(self, *, now: float) -> Iterator[RunMessage]:
        """Yield the end of the run. Args: now: seconds since 1970."""
        if self._origin:
            sequence = _digest(self._n_steps, [])
            yield wire.Finish(**self._origin, sent_at=now, sequence=sequence, reason=wire.EndReason.CLOSED.value)


def _attempt_name(first: LoggedStep) -> str:
    """Return the name of an attempt; its first step may have more scalars later if its writer is known."""
    content = [first.writer, first.attempt] if first.writer else sorted(first.scalars.items())
    return f"import-{_digest(first.step, content):x}"


def _digest(number: int, content: list[Any]) -> int:
    packed = msgspec.msgpack.encode((number, content))
    return int.from_bytes(blake2b(packed, digest_size=SEQUENCE_BYTES).digest(), "big")
