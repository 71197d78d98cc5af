"""Errors of messages, with the field that is invalid."""

from __future__ import annotations

import re

import msgspec

UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""The exceptions that decoding raises for bytes that are not a message."""

_MISSING = re.compile(r"Object missing required field `(\w+)`")
ANY_KEY = "[...]"
"""The text that msgspec puts in a path for a key of a mapping."""


class WireError(ValueError):
    """A message is invalid: `field` names the field, the text states what is expected."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}")
        self.field = field
        self.message = message


def wire_error_of(error: Exception) -> WireError:
    """Return a decoding exception as an error that names the field, also if the field is missing."""
    message, _, path = str(error).partition(" - at `$")
    field = path.rstrip("`").lstrip(".")
    missing = _MISSING.match(message)
    if missing:
        field, message = f"{field}.{missing[1]}".lstrip("."), "is required"
    return WireError(field or "body", message)


def shorten_value(value: object) -> str:
    """Return the text of a received value, truncated for an error message."""
    text = str(value)
    return text if len(text) <= 64 else f"{text[:64]}... ({len(text)} characters)"
