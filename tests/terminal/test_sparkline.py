"""Sparks: a series in one line of text."""

from __future__ import annotations

import math

import pytest

from trmon.terminal.text import ASCII_BARS, text_sparkline

CASES = [
    ("nothing is nothing", [], 8, ""),
    ("the least and the largest are the lowest and the highest bar", [1, 2, 3], 8, "▁▅█"),
    ("falling values fall", [8, 7, 6, 5, 4, 3, 2, 1], 8, "█▇▆▅▄▃▂▁"),
    ("one value stands in the middle", [5], 8, "▄"),
    ("values that are equal stand in the middle", [5, 5, 5], 8, "▄▄▄"),
    ("what is not known is a gap", [1, None, 2], 8, "▁ █"),
    ("what is not finite is not known", [1, math.nan, math.inf, 2], 8, "▁  █"),
    ("nothing known is all gaps", [None, math.nan], 8, "  "),
    ("more values than bars: each shows the last of its share", [0, 9, 1, 9, 2, 0], 3, "██▁"),
    ("a share whose last is not known shows the last that is", [0, 1, 3, None], 2, "▁█"),
    ("the newest value is the last bar", [1] * 999 + [2], 10, "▁▁▁▁▁▁▁▁▁█"),
]


@pytest.mark.parametrize(("values", "width", "drawn"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_sparks(values: list[float | None], width: int, drawn: str) -> None:
    assert text_sparkline(values, width=width) == drawn


def test_a_terminal_that_knows_no_more_gets_ascii() -> None:
    drawn = text_sparkline(list(range(8)), width=8, ascii_only=True)
    assert drawn == ASCII_BARS
    assert drawn.isascii()
