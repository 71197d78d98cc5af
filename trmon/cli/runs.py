"""`trmon runs`, `delete` and `note`: list and delete runs, and the notes on them."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Annotated

import typer
from rich import box
from rich.table import Table
from rich.text import Text

from trmon.cli.command import console, echo_json, plain_errors
from trmon.cli.running_service import service_of
from trmon.domain.errors import InvalidInput
from trmon.domain.identity import RunKey
from trmon.domain.runs.run import RunState
from trmon.terminal.fleet import EDGES, GAP
from trmon.terminal.names import fold_run_names
from trmon.terminal.text import PIPE_WIDTH, last_seen_text
from trmon_client.api import NoteInfo, RunInfo
from trmon_client.api.answers import encode_answer

WRAPPED = ("owner", "tags", "firing")
LEAST_NAME, NAME_SHARE = 24, 3
"""Columns of a name that tags and owners leave free, and the part of a terminal that names have at most."""


def run_table(runs: Iterable[RunInfo], *, now: float, width: int) -> Table:
    """Return the table of runs; a narrow one lacks tags, then owners. Args: now: seconds since the epoch."""
    runs = list(runs)
    cells: dict[str, list[str]] = {
        "state": [run.state for run in runs],
        "step": ["-" if run.last_step is None else f"{run.last_step:,}" for run in runs],
        "seen": [last_seen_text(run.last_report_at, now=now) for run in runs],
        "owner": [run.owner or "" for run in runs],
        "tags": [", ".join(run.tags) for run in runs],
        "firing": [", ".join(run.firing) for run in runs],
    }
    least = {name: max(map(len, [name, *_words(name, values)])) for name, values in cells.items()}
    needed = min(LEAST_NAME, max((len(run.name) for run in runs), default=0))
    for name in ("tags", "owner"):
        if _room(least, width) < needed:
            del cells[name], least[name]
    room = _room(least, width) if width >= PIPE_WIDTH else min(_room(least, width), width // NAME_SHARE)
    names = fold_run_names(tuple((run.project, run.run) for run in runs), max(room, needed))
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("run", no_wrap=True)
    for name in cells:
        table.add_column(name, justify="right" if name == "step" else "left", min_width=least[name], overflow="fold")
    for run, row in zip(runs, zip(*cells.values(), strict=True), strict=True):
        table.add_row(Text(names[run.project, run.run]), *map(Text, row))
    return table


def _words(name: str, values: Iterable[str]) -> Iterable[str]:
    return (word for value in values for word in value.split()) if name in WRAPPED else values


def _room(least: Mapping[str, int], width: int) -> int:
    """Return the columns that are left for names where no word of the others is broken."""
    return width - EDGES - sum(GAP + of_column for of_column in least.values())


def runs_command(
    project: Annotated[str | None, typer.Option(help="Only runs of this project.")] = None,
    state: Annotated[RunState | None, typer.Option(help="Only runs in this state.")] = None,
    tag: Annotated[str | None, typer.Option(help="Only runs with this tag.")] = None,
    owner: Annotated[str | None, typer.Option(help="Only runs of this owner.")] = None,
    archived: Annotated[bool, typer.Option("--archived", help="The archived runs instead.")] = False,
    limit: Annotated[int, typer.Option(min=1, help="Maximum number of runs.")] = 100,
    url: Annotated[str | None, typer.Option(help="URL of the service.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON object per line.")] = False,
) -> None:
    """List runs, newest first: state, newest step, owner, tags and firing rules."""
    with plain_errors(), service_of(url) as service:
        found = service.runs(project, state=state.value if state else None, tag=tag, owner=owner, archived=archived)
        runs = islice(found, limit)
        if as_json:
            for run in runs:
                echo_json(encode_answer(run))
        else:
            terminal = console()
            terminal.print(run_table(runs, now=time.time(), width=terminal.width))


def delete_command(
    run: Annotated[str, typer.Argument(metavar="PROJECT/RUN", help="A run of a running service.")],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    url: Annotated[str | None, typer.Option(help="URL of the service.")] = None,
) -> None:
    """Delete a run with all its data, after asking; needs a token with the scope admin."""
    with plain_errors(), service_of(url) as service:
        name = str(RunKey.parse(run))
        if not yes:
            found = service.run(name)
            step = "without a step" if found.last_step is None else f"at step {found.last_step:,}"
            typer.confirm(f"Delete {name} ({found.state}, {step}) with all its data?", abort=True)
        service.delete(name)
        typer.echo(f"deleted {name}")


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
        name = str(RunKey.parse(run))
        if text is None and step is not None:
            raise InvalidInput("TEXT", "is required with --step")
        notes = service.notes(name) if text is None else [service.add_note(name, text, step=step)]
        if as_json:
            for note in notes:
                echo_json(encode_answer(note))
        else:
            console().print(note_table(notes))
