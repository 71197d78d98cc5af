"""Lines such as `step:12 - actor/pg_loss:0.1 - actor/lr:1e-06`, as verl's console logger prints them."""

from __future__ import annotations

import re
from collections.abc import Iterator

from trmon.domain.analysis.logged_steps import LogRow
from trmon.log_formats.number_text import bare_number

SEPARATOR = " - "
_START = re.compile(r"(?:^|\s)step:(\d+) - ")
_PAIR = re.compile(r"(\S+?):([-+]?(?:[\d.]+(?:[eE][-+]?\d+)?|inf|nan)|[a-z][\w.]*\([^()]*\))")


class StepPairs:
    """A line is a row; a terminal may have wrapped it, within a number too."""

    def __init__(self) -> None:
        self._text = ""
        self._line = 0

    def add_line(self, line: str, number: int) -> Iterator[LogRow]:
        """Yield the row that a line which does not continue it ends."""
        if self.is_continued_by(line):
            self._text = _joined(self._text, line)
            return
        yield from self.finish()
        found = _START.search(line)
        if found is not None:
            self._text, self._line = line[found.start() :].lstrip(), number

    def is_continued_by(self, line: str) -> bool:
        """Whether a line is the rest of the open one: all pairs of both together are whole."""
        if not self._text or _START.search(line):
            return False
        was_cut = not _is_pair(self._text.rpartition(SEPARATOR)[2])
        *whole, last = _joined(self._text, line).split(SEPARATOR)
        last = last.removesuffix(" -")
        may_go_on = " " not in last and (was_cut or SEPARATOR in line)
        return all(map(_is_pair, whole)) and (_is_pair(last) or may_go_on)

    def finish(self) -> Iterator[LogRow]:
        """Yield the open row."""
        text, self._text = self._text, ""
        row = {}
        for part in text.split(SEPARATOR) if text else ():
            pair = _PAIR.fullmatch(part.strip())
            name, value = pair.groups() if pair else _cut_pair(part)
            row[name] = bare_number(value)
        if row:
            yield LogRow(row, self._line)


def _is_pair(text: str) -> bool:
    return _PAIR.fullmatch(text.strip()) is not None


def _cut_pair(part: str) -> tuple[str, str]:
    """Return the name of a pair that was cut off or that another process wrote into, and what stands as its value."""
    name, _, value = part.strip().partition(":")
    return name, value


def _joined(text: str, more: str) -> str:
    """Return both parts of a wrapped line; a terminal drops spaces where it wraps."""
    if text.endswith(" -"):
        return f"{text} {more.lstrip()}"
    return f"{text} {more}" if more.startswith("- ") else text + more
