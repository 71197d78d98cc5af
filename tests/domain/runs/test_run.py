"""The text of notes: what is kept, and what is refused."""

from __future__ import annotations

import pytest

from trmon.domain.errors import InvalidInput
from trmon.domain.runs.run import MAX_AUTHOR_LENGTH, MAX_NOTE_LENGTH, checked_author, checked_note_text

FAMILY = "\U0001f468\u200d\U0001f469\u200d\U0001f467"


@pytest.mark.parametrize("text", ["lr raised", "two\nlines", "größer 学习率", FAMILY, "x" * MAX_NOTE_LENGTH])
def test_text_is_kept_in_any_language(text: str) -> None:
    assert checked_note_text(f" {text}\n") == text


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "1 to 2000 characters, not 0"),
        (" \n ", "not 0"),
        ("x" * (MAX_NOTE_LENGTH + 1), "not 2001"),
        ("a\x1b[2Jb", r"U\+001B"),
        ("a\0b", r"U\+0000"),
        ("a\rb", r"U\+000D"),
        ("a\x9bb", r"U\+009B"),
        ("a\u202eb", r"U\+202E"),
        ("a\u2066b", r"U\+2066"),
        ("a\u2028b", r"U\+2028"),
        ("a\ud800b", r"U\+D800"),
    ],
)
def test_other_text_is_refused_with_its_character(text: str, said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        checked_note_text(text)


def test_an_author_is_one_line() -> None:
    assert checked_author(" ana ") == "ana"
    for name in ("", "a\nb", "x" * (MAX_AUTHOR_LENGTH + 1)):
        with pytest.raises(InvalidInput, match="author"):
            checked_author(name)
