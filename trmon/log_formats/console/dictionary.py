"""Dictionaries as Python prints them, on one line or several: TRL, ms-swift, slime, OpenRLHF, SkyRL."""

from __future__ import annotations

import re
from collections.abc import Iterator

from trmon.domain.analysis.logged_steps import LogDefect, LogRow
from trmon.log_formats.log_format import LogItem
from trmon.log_formats.number_text import bare_number

MAX_LINES = 2000
_PAIR = re.compile(
    r"""(?P<quote>['"])(?P<name>[^'"\n]+)(?P=quote)\s*:\s*"""
    r"""(?:(?P<mark>['"])(?P<text>[^'"\n]*)(?P=mark)|(?P<bare>[^,{}\[\]'"\s][^,{}\[\]'"]*(?:\([^)]*\))?))"""
)
_STEP = re.compile(r"\b(step|rollout|perf)\s+(\d+)\b\W*$", re.IGNORECASE)
_BAR = re.compile(r"\|\s*(\d+)/\d+ \[")
_STEP_NAMES = {"step": "step", "rollout": "rollout/step", "perf": "rollout/step"}


class Dictionaries:
    """A dictionary is a row; its step is what it states, else the words before it, else the last progress bar."""

    def __init__(self) -> None:
        self._open: list[str] = []
        self._begin = 0
        self._depth = 0
        self._words = ""
        self._bar: str | None = None

    def add_line(self, line: str, number: int) -> Iterator[LogItem]:
        """Yield the rows of the dictionaries that end in this line."""
        if self._depth == 0:
            begin = line.find("{")
            before = line if begin < 0 else line[:begin]
            self._note_bar(before)
            if begin < 0 or not _begins_row(line[begin:]):
                self._words = line if line.strip() else self._words
                return
            self._words, line = before if before.strip() else self._words, line[begin:]
            self._begin = number
        self._open.append(line)
        self._depth += line.count("{") - line.count("}")
        if self._depth <= 0:
            yield from self._close()
        elif len(self._open) > MAX_LINES:
            yield from self.finish()

    def finish(self) -> Iterator[LogItem]:
        """Yield a defect for a dictionary that does not end, of which nothing is read."""
        if self._open and _PAIR.search("\n".join(self._open)):
            yield LogDefect(self._begin, "begins a dictionary that does not end", is_end=True)
        self._open, self._depth = [], 0

    def _note_bar(self, text: str) -> None:
        counts = _BAR.findall(text)
        self._bar = counts[-1] if counts else self._bar

    def _close(self) -> Iterator[LogItem]:
        text, self._open, self._depth = "\n".join(self._open), [], 0
        row: dict[str, object] = dict(self._stated_step())
        for pair in _PAIR.finditer(text):
            value = pair["text"] if pair["bare"] is None else bare_number(pair["bare"])
            row[pair["name"]] = None if value in ("None", "null") else value
        self._words = ""
        if len(row) > 1:
            yield LogRow(row, self._begin)

    def _stated_step(self) -> Iterator[tuple[str, object]]:
        found = _STEP.search(self._words)
        if found is not None:
            yield _STEP_NAMES[found.group(1).lower()], found.group(2)
        elif self._bar is not None:
            yield "step", self._bar


def _begins_row(text: str) -> bool:
    """Whether a brace opens a dictionary: a quoted key follows it, or the line ends."""
    rest = text[1:].lstrip()
    return not rest or rest[0] in "'\""
