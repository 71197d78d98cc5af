"""The text of notes, what is kept and what is refused; and the checkpoints of a run."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.domain.memory_log import MemoryLog
from trmon.domain.errors import InvalidInput
from trmon.domain.runs.run import (
    MAX_AUTHOR_LENGTH,
    MAX_CHECKPOINTS,
    MAX_NOTE_LENGTH,
    MAX_PATH_LENGTH,
    MAX_WARNINGS,
    NEWEST_CHECKPOINTS,
    RunWarning,
    SavedCheckpoint,
    checked_author,
    checked_note_text,
    with_checkpoint,
    with_new_warnings,
    without_checkpoints_after,
)
from trmon_client.core import wire

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
        ("a\rb", r"U\+000D"),
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


def saved_of(*saved: wire.SavedCheckpoint, known: tuple[RunWarning, ...] = ()) -> tuple[RunWarning, ...]:
    for at, one in enumerate(saved):
        known = with_checkpoint(known, one, at=float(at))
    return known


def checkpoints_of(warnings: tuple[RunWarning, ...]) -> list[tuple[int, str]]:
    run = replace(MemoryLog().stored_run, warnings=warnings)
    return [(one.step, one.path) for one in run.checkpoints]


def test_checkpoints_are_in_the_order_of_steps_without_those_that_are_deleted_or_saved_over() -> None:
    known = saved_of(
        *(wire.SavedCheckpoint(step, f"/c/{step}") for step in (30, 10, 20)),
        wire.SavedCheckpoint(40, "/c/40", deleted=[10, 99]),
        wire.SavedCheckpoint(50, "/c/20"),
        wire.SavedCheckpoint(30, "/again/30"),
    )
    assert checkpoints_of(known) == [(30, "/again/30"), (40, "/c/40"), (50, "/c/20")]
    assert checkpoints_of(without_checkpoints_after(known, 40)) == [(30, "/again/30"), (40, "/c/40")]


def test_of_many_checkpoints_the_newest_are_all_kept_and_the_others_thinned_out() -> None:
    known = saved_of(*(wire.SavedCheckpoint(step, f"/c/{step}") for step in range(0, 1000, 5)))
    steps = [step for step, _ in checkpoints_of(known)]
    assert steps[-NEWEST_CHECKPOINTS:] == [*range(1000 - 5 * NEWEST_CHECKPOINTS, 1000, 5)]
    assert len(steps) <= MAX_CHECKPOINTS
    assert steps[0] == 0


def test_checkpoints_are_no_mistakes_and_take_no_place_of_one() -> None:
    known = saved_of(*(wire.SavedCheckpoint(step, f"/c/{step}") for step in range(MAX_WARNINGS)))
    reported = {"step_went_back": "it did", "checkpoint 3": "/forged"}
    known = with_new_warnings(known, reported, at=9.0)
    run = replace(MemoryLog().stored_run, warnings=known)
    assert [one.kind for one in run.mistakes] == ["step_went_back"]
    assert run.checkpoints[3] == SavedCheckpoint(3, "/c/3", at=3.0)


def test_a_path_is_one_printable_line_of_bounded_length() -> None:
    known = saved_of(wire.SavedCheckpoint(1, "/a\n\u202eb"), wire.SavedCheckpoint(2, "/" + "x" * 5000))
    (_, first), (_, second) = checkpoints_of(known)
    assert first == "/a\ufffd\ufffdb"
    assert len(second) == MAX_PATH_LENGTH
