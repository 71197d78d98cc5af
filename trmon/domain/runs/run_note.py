"""Notes: what people write on a run, or on one of its steps."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass

from trmon.domain.model.errors import InvalidInput

MAX_NOTE_LENGTH = 2000
MAX_AUTHOR_LENGTH = 128
MAX_NOTES = 1000
"""Of one run."""
_REORDERING = frozenset(("LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"))
"""Classes of characters that let text look like another one (Unicode, annex 9)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunNote:
    """A note on a run, or with `step` on one of its steps; `at` is in seconds since the epoch."""

    id: int
    run_id: int
    step: int | None
    author: str
    text: str
    at: float


def checked_note_text(text: str) -> str:
    """Return the text of a note, without spaces around it. Errors: InvalidInput."""
    return _checked(text.strip(), field="text", max_length=MAX_NOTE_LENGTH, allowed="\n")


def checked_author(name: str) -> str:
    """Return the name of an author. Errors: InvalidInput."""
    return _checked(name.strip(), field="author", max_length=MAX_AUTHOR_LENGTH)


def _checked(text: str, *, field: str, max_length: int, allowed: str = "") -> str:
    if not 0 < len(text) <= max_length:
        raise InvalidInput(field, f"must have 1 to {max_length} characters, not {len(text)}")
    for character in text:
        if character not in allowed and _is_control(character):
            raise InvalidInput(field, f"holds the control character U+{ord(character):04X}")
    return text


def _is_control(character: str) -> bool:
    is_reordering = unicodedata.bidirectional(character) in _REORDERING
    return is_reordering or unicodedata.category(character) in ("Cc", "Cs", "Zl", "Zp")
