"""Lines such as `step:12 - actor/pg_loss:0.1 - actor/lr:1e-06`, as verl's console logger prints them."""

from __future__ import annotations

import re
from collections.abc import Iterator

from trmon.log_formats.console.number_text import bare_number
from trmon.log_formats.log_format import LogRow

_START = re.compile(r"(?:^|\s)step:(\d+) - ")


class StepPairs:
    """A line is a row."""

    def add_line(self, line: str) -> Iterator[LogRow]:
        """Yield the row of a line, if it is one."""
        found = _START.search(line)
        if found is None:
            return
        row: dict[str, object] = {"step": found.group(1)}
        for pair in line[found.end() :].split(" - "):
            name, colon, value = pair.rpartition(":")
            if colon:
                row[name.strip()] = bare_number(value)
        yield row

    def finish(self) -> Iterator[LogRow]:
        """Yield nothing: no row spans lines."""
        return iter(())
