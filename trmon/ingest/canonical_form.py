"""Bring a message's fields into one canonical form, so that equal data has equal bytes whichever client encoded it."""

from __future__ import annotations

from typing import Any

import msgspec

from trmon.domain.model.identity import RunKey
from trmon_client.core import wire


def canonical_message(message: wire.Message, key: RunKey) -> wire.Message:
    """Return a message that names its run, with its numbers as floats sorted by name."""
    changed: dict[str, Any] = {"project": key.project, "run": key.run}
    if isinstance(message, wire.Report):
        changed["scalars"] = _numbers(message.scalars)
    elif isinstance(message, wire.Scalars):
        changed["values"] = _numbers(message.values)
    return msgspec.structs.replace(message, **changed)


def _numbers(scalars: dict[str, wire.JsonNumber]) -> dict[str, wire.JsonNumber]:
    return {name: wire.wire_number(scalars[name]) + 0.0 for name in sorted(scalars)}
