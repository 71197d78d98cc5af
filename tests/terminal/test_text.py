"""Text on the terminal: that of others controls nothing, rows and names fit a width, and a series is one line."""

from __future__ import annotations

import json
import math
from io import StringIO
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.table import Table
from rich.text import Text

from trmon.terminal.names import fold_names, fold_run_names
from trmon.terminal.text import (
    ASCII_BARS,
    PIPE_WIDTH,
    PrintableConsole,
    cut_middle,
    print_rows,
    printable,
    printable_json,
    text_sparkline,
)

PRINTABLE = [
    pytest.param("\x1b]0;owned\x07", "\ufffd]0;owned\ufffd", id="an escape sequence"),
    pytest.param("\x9b2J", "\ufffd2J", id="a control character of one byte"),
    pytest.param("a\rb\x08", "a\ufffdb\ufffd", id="a carriage return and a backspace"),
    pytest.param("ab\u202etxt.exe", "ab\ufffdtxt.exe", id="a reversal of the reading direction"),
    pytest.param("a\u200bb", "a\ufffdb", id="an invisible character"),
    pytest.param("one\ntwo\tthree", "one\ntwo\tthree", id="line ends"),
    pytest.param("Ω 中 ▁▂▇ é", "Ω 中 ▁▂▇ é", id="other letters"),
    pytest.param("", "", id="nothing"),
]


@pytest.mark.parametrize(("given", "shown"), PRINTABLE)
def test_only_printable_characters_remain(given: str, shown: str) -> None:
    assert printable(given) == shown


def test_json_is_printable_and_means_the_same() -> None:
    document = {"é": ["\x1b[2J\x7f\x9b2J", "a\u202eb\u200b\u2028", '\U000e0001 ▁ \\ "']}
    written = printable_json(json.dumps(document, ensure_ascii=False, indent=2))
    assert json.loads(written) == document
    assert all(character.isprintable() or character == "\n" for character in written)
    assert "é" in written


def test_a_console_prints_text_in_every_form_without_its_control_characters() -> None:
    file = StringIO()
    console = PrintableConsole(file=file, force_terminal=True, color_system="standard", width=60)
    hostile = "note\x1b[2J\x9b2J\u202e"
    table = Table(f"title {hostile}")
    table.add_row(hostile)
    for printed in (hostile, Text(hostile, style="red"), table):
        console.print(printed)
    written = file.getvalue()
    assert written.count("note") == 4
    assert "\x1b[31m" in written
    assert not any(character in written for character in ("\x1b[2J", "\x9b", "\u202e"))


HEADS, ROWS = ("target", "after"), [("math/grpo", '{"owner": "ana", "note": "' + "word " * 12 + '"}'), ("code/ppo", "")]


@pytest.mark.parametrize("width", [40, 80, 120, 200, PIPE_WIDTH])
def test_rows_are_a_table_where_there_is_room_and_no_word_of_them_is_broken(width: int) -> None:
    file = StringIO()
    print_rows(PrintableConsole(file=file, width=width), HEADS, ROWS)
    lines = file.getvalue().splitlines()
    assert max(map(len, lines)) <= width
    assert {word for row in ROWS for cell in row for word in cell.split()} <= set(file.getvalue().split())
    assert any(line.split() == [*HEADS] for line in lines) == (width > 110)


def test_a_word_that_is_longer_than_a_line_breaks_after_its_separators_and_in_a_pipe_nowhere() -> None:
    name = "-".join(["qwen3", *["part"] * 80])
    narrow, piped = StringIO(), StringIO()
    print_rows(PrintableConsole(file=narrow, width=60), ["run"], [[name]])
    print_rows(PrintableConsole(file=piped, width=PIPE_WIDTH), ["run"], [[name]])
    broken = narrow.getvalue().split()[1:]
    assert "".join(broken) == name
    assert {part for line in broken for part in line.split("-") if part} == {"qwen3", "part"}
    assert piped.getvalue() == f"run  {name}\n\n"


SPARKS = [
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


@pytest.mark.parametrize(("values", "width", "drawn"), [case[1:] for case in SPARKS], ids=[case[0] for case in SPARKS])
def test_sparks(values: list[float | None], width: int, drawn: str) -> None:
    assert text_sparkline(values, width=width) == drawn


def test_a_terminal_that_knows_no_more_gets_ascii() -> None:
    drawn = text_sparkline(list(range(8)), width=8, ascii_only=True)
    assert drawn == ASCII_BARS
    assert drawn.isascii()


@settings(max_examples=50)
@given(text=st.text(max_size=40), width=st.integers(0, 50))
def test_cut_text_has_at_most_the_width_and_keeps_both_ends(text: str, width: int) -> None:
    cut = cut_middle(text, width)
    assert len(cut) <= max(width, 0) or cut == text
    assert cut == text if len(text) <= width else len(cut) == width
    if 3 <= width < len(text):
        assert (cut[0], cut[-1]) == (text[0], text[-1])


CASES = json.loads(Path(__file__).with_name("names.json").read_text())
NAME = st.lists(st.sampled_from(["a", "ab", "seed1", "seed2", "x" * 9]), min_size=1, max_size=6).map("-".join)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["case"])
def test_names_lose_what_tells_nothing(case: dict[str, object]) -> None:
    shown, width = case["shown"], case["width"]
    assert isinstance(shown, dict)
    assert fold_names(shown, lambda text: len(text) <= int(str(width))) == shown


@given(st.sets(NAME | st.text("ab-_", min_size=1, max_size=20), min_size=1, max_size=12), st.integers(1, 30))
def test_no_two_names_are_shown_alike_and_a_folded_one_matches_its_name(names: set[str], width: int) -> None:
    shown = fold_names(names, lambda text: len(text) <= width)
    assert shown.keys() == names
    assert len(set(shown.values())) == len(names)
    for name, text in shown.items():
        rest = name
        for part in text.split("…"):
            assert part in rest
            rest = rest[rest.index(part) + len(part) :]


def test_projects_are_told_apart_too() -> None:
    runs = (("team-reasoning-math", "grpo-seed0"), ("team-reasoning-code", "grpo-seed0"))
    assert [*fold_run_names(runs, 40).values()] == ["team-reasoning-math/grpo-seed0", "team-reasoning-code/grpo-seed0"]
    assert [*fold_run_names(runs, 20).values()] == ["…math/grpo-seed0", "…code/grpo-seed0"]
