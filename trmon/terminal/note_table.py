"""Notes as a table of text."""

from __future__ import annotations

import time
from collections.abc import Iterable

from rich import box
from rich.table import Table
from rich.text import Text

from trmon_client.api import NoteInfo


def note_table(notes: Iterable[NoteInfo]) -> Table:
    """Return the table of notes; times are local, with their zone."""
    table = Table("at", "author", box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("step", justify="right")
    table.add_column("note", overflow="fold")
    for note in notes:
        at = time.strftime("%F %T %Z", time.localtime(note.at))
        step = "" if note.step is None else f"{note.step:,}"
        table.add_row(*map(Text, (at, note.author, step, note.text)))
    return table
