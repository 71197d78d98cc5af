"""`trmon note`: write notes on a run, and read them."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Annotated

import typer
from rich import box
from rich.table import Table
from rich.text import Text

from trmon.cli.command import console, plain_errors
from trmon.cli.running_service import service_of
from trmon.domain.errors import InvalidInput
from trmon.terminal.arguments import parse_run_name
from trmon_client.api import NoteInfo
from trmon_client.api.answers import encode_answer


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


def note_command(
    run: Annotated[str, typer.Argument(metavar="PROJECT/RUN", help="A run of a running service.")],
    text: Annotated[str | None, typer.Argument(help="The note; without it, the notes are printed.")] = None,
    step: Annotated[int | None, typer.Option(min=0, help="The step that the note is on.")] = None,
    url: Annotated[str | None, typer.Option(help="URL of the service.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON object per line.")] = False,
) -> None:
    """Write a note on a run or on one of its steps, or print its notes, newest first."""
    with plain_errors(), service_of(url) as service:
        name = str(parse_run_name(run))
        if text is None and step is not None:
            raise InvalidInput("TEXT", "is required with --step")
        notes = service.notes(name) if text is None else [service.add_note(name, text, step=step)]
        if as_json:
            for note in notes:
                typer.echo(encode_answer(note))
        else:
            console().print(note_table(notes))
