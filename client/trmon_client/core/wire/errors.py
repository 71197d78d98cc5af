"""What is wrong with a message, and where."""

from __future__ import annotations

import re

import msgspec

UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What decoding raises for bytes that are no message."""

_MISSING = re.compile(r"Object missing required field `(\w+)`")
ANY_KEY = "[...]"
"""How msgspec names a key of a mapping in a path."""


class WireError(ValueError):
    """A message that cannot be accepted: `field` names where, the text says what was expected."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}")
        self.field = field
        self.message = message


def wire_error_of(error: Exception) -> WireError:
    """Return what decoding raised as an error that names the field, a missing one too."""
    message, _, path = str(error).partition(" - at `$")
    field = path.rstrip("`").lstrip(".")
    missing = _MISSING.match(message)
    if missing:
        field, message = f"{field}.{missing[1]}".lstrip("."), "is required"
    return WireError(field or "body", message)


def shorten_value(value: object) -> str:
    """Return a value of the sender short enough for a message."""
    text = str(value)
    return text if len(text) <= 64 else f"{text[:64]}... ({len(text)} characters)"
