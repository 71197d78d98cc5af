"""The trainer's configuration as plain values: whatever it holds, it must survive the wire and raise nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from numbers import Integral, Real
from typing import Any

import msgspec

MAX_BYTES = 1 << 18
"""What all of it may have on the wire; entries that do not fit are left out."""
MAX_DEPTH = 12
MAX_ENTRIES = 4096
"""Entries a mapping or a sequence keeps; the rest is cut."""
MAX_TEXT = 4096


def plain(config: Any) -> dict[str, Any]:
    """Return a mapping, or the attributes of an object such as argparse's namespace, as plain values."""
    values = config if isinstance(config, Mapping) else getattr(config, "__dict__", {})
    kept: dict[str, Any] = {}
    room = MAX_BYTES - 16
    for name, value in islice(values.items(), MAX_ENTRIES):
        entry = {str(name)[:MAX_TEXT]: _plain(value, MAX_DEPTH)}
        size = len(msgspec.msgpack.encode(entry))
        if size <= room:
            room -= size
            kept |= entry
    return kept


def _plain(value: Any, depth: int) -> Any:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, Integral):
        return int(value) if -(1 << 63) <= int(value) < 1 << 63 else str(value)
    if isinstance(value, Real):
        return float(value)
    if isinstance(value, str):
        return value[:MAX_TEXT]
    if depth > 0 and isinstance(value, Mapping):
        return {str(key)[:MAX_TEXT]: _plain(item, depth - 1) for key, item in islice(value.items(), MAX_ENTRIES)}
    if depth > 0 and isinstance(value, (Sequence, set, frozenset)) and not isinstance(value, (bytes, bytearray)):
        return [_plain(item, depth - 1) for item in islice(value, MAX_ENTRIES)]
    return str(value)[:MAX_TEXT]
