"""Keeps text of others, such as notes and names, from controlling the terminal that it is printed on."""

from __future__ import annotations

import json
from collections.abc import Iterable

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


def printable(text: str) -> str:
    """Return text with a replacement for each control or invisible character other than line ends."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in "\n\t\xa0" else REPLACEMENT for c in text)


def printable_json(document: str) -> str:
    """Return JSON with an escape, which parsers read alike, for each control or invisible character."""
    return "".join(c if c.isprintable() or c == "\n" else json.dumps(c)[1:-1] for c in document)


class PrintableConsole(Console):
    """A console whose own colours and cursor movements are all that controls the terminal."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Yield the segments of a renderable, printable."""
        for text, style, control in super().render(renderable, options):
            yield Segment(text if control else printable(text), style, control)
