"""Text of others on the terminal: it is shown, and controls nothing."""

from __future__ import annotations

import json
from io import StringIO

import pytest
from rich.table import Table
from rich.text import Text

from trmon.terminal.text import PrintableConsole, printable, printable_json

CASES = [
    pytest.param("\x1b]0;owned\x07", "\ufffd]0;owned\ufffd", id="an escape sequence"),
    pytest.param("\x9b2J", "\ufffd2J", id="a control character of one byte"),
    pytest.param("a\rb\x08", "a\ufffdb\ufffd", id="a carriage return and a backspace"),
    pytest.param("ab\u202etxt.exe", "ab\ufffdtxt.exe", id="a reversal of the reading direction"),
    pytest.param("a\u200bb", "a\ufffdb", id="an invisible character"),
    pytest.param("one\ntwo\tthree", "one\ntwo\tthree", id="line ends"),
    pytest.param("Ω 中 ▁▂▇ é", "Ω 中 ▁▂▇ é", id="other letters"),
    pytest.param("", "", id="nothing"),
]


@pytest.mark.parametrize(("given", "shown"), CASES)
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
