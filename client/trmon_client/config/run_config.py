"""The trainer's configuration, whatever it holds, as plain values without secrets."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import is_dataclass
from itertools import islice
from numbers import Integral, Real
from types import SimpleNamespace
from typing import Any

import msgspec

from trmon_client.core.redaction import redact, redact_values


def sanitize(value: object, *, at_most: int) -> str:
    """Return `str(value)`, or the value of a string enum, with lone surrogates and NUL replaced.

    Messages and databases accept neither. An object whose `str` fails gives the name of its class.
    Args: at_most: the maximum number of characters.
    """
    try:
        text = (str.__str__(value) if isinstance(value, str) else str(value))[:at_most]
    except Exception:  # noqa: BLE001  the trainer's own objects may raise anything
        text = type(value).__name__[:at_most]
    return text.encode(errors="replace").decode().replace("\0", "\N{REPLACEMENT CHARACTER}")


MAX_BYTES = 1 << 18
"""The maximum encoded size of a configuration; entries that do not fit are left out."""
MAX_DEPTH = 12
MAX_ENTRIES = 4096
"""The maximum number of entries of a mapping or a sequence; the rest is cut."""
MAX_VALUES = 1 << 16
"""The maximum number of values in an entry, and a quarter of the maximum in total; entries beyond are left out."""
MAX_TEXT = 4096
MARGIN = 4096
"""How much of a longer text is read beyond its limit: half of a secret could not be recognised."""


class _TooManyValues(Exception):
    """There are more values than the limit."""


def plain_config(config: Any) -> dict[str, Any]:
    """Return a mapping, or the attributes of an object such as argparse's namespace, as plain values without secrets.

    A value that cannot be read, such as a missing value of OmegaConf, is replaced by the name of its error.
    """
    values = config if isinstance(config, Mapping) else getattr(config, "__dict__", {})
    kept: dict[str, Any] = {}
    room, left = MAX_BYTES - 16, 4 * MAX_VALUES
    for name, value in _entries(values):
        reader = _Reader(min(left, MAX_VALUES))
        try:
            entry = redact_values({sanitize(name, at_most=MAX_TEXT): reader.plain(value, MAX_DEPTH)})
        except _TooManyValues:
            continue
        finally:
            left -= reader.n_seen
        size = len(msgspec.msgpack.encode(entry))
        if size <= room:
            room -= size
            kept |= entry
    return kept


class _Reader:
    """Converts values up to a maximum number."""

    def __init__(self, most: int) -> None:
        self.n_seen = 0
        self._most = most

    def plain(self, value: Any, depth: int) -> Any:
        """Return a plain value. Errors: _TooManyValues."""
        if self.n_seen >= self._most:
            raise _TooManyValues
        self.n_seen += 1
        try:
            return self._plain(value, depth)
        except _TooManyValues:
            raise
        except Exception as error:  # noqa: BLE001  the trainer's own objects may raise anything
            return type(error).__name__

    def _plain(self, value: Any, depth: int) -> Any:
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, Integral):
            return int(value) if -(1 << 63) <= int(value) < 1 << 63 else str(value)
        if isinstance(value, Real):
            return float(value)
        if isinstance(value, (Namespace, SimpleNamespace)) or (is_dataclass(value) and not isinstance(value, type)):
            value = vars(value)
        if depth > 0 and isinstance(value, Mapping):
            return {sanitize(key, at_most=MAX_TEXT): self.plain(item, depth - 1) for key, item in _entries(value)}
        is_text = isinstance(value, (str, bytes, bytearray))
        if depth > 0 and isinstance(value, (Sequence, set, frozenset)) and not is_text:
            return [self.plain(item, depth - 1) for item in islice(value, MAX_ENTRIES)]
        return redact(sanitize(value, at_most=MAX_TEXT + MARGIN))[:MAX_TEXT]


def _entries(values: Mapping[Any, Any]) -> Iterator[tuple[Any, Any]]:
    """Yield the first entries, with the name of the error for a value that cannot be read."""
    try:
        names = list(islice(values, MAX_ENTRIES))
    except Exception:  # noqa: BLE001  the trainer's own objects may raise anything
        return
    for name in names:
        try:
            value = values[name]
        except Exception as error:  # noqa: BLE001  OmegaConf raises where a value is still "???"
            value = type(error).__name__
        yield name, value
