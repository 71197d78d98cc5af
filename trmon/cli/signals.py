"""`trmon signals`: print signals of a run, or the names of those it has."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from typing import Annotated, Any, TextIO

import typer
from rich import box
from rich.table import Table

from trmon.cli.command import console, plain_errors
from trmon.cli.running_service import service_of
from trmon.domain.errors import InvalidInput
from trmon.domain.identity import RunKey
from trmon.domain.severity import JsonNumber, json_number
from trmon.terminal.arguments import parse_steps
from trmon_client.api import SignalHistory


def write_csv(history: SignalHistory, out: TextIO) -> None:
    """Write a header and a row a step; NaN is an empty cell."""
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["step", *history.bands])
    writer.writerows(_rows(history))


def write_json_lines(history: SignalHistory, out: TextIO) -> None:
    """Write an object a step; NaN is null, infinities are "inf" and "-inf"."""
    rows = (
        {"step": step, "signals": dict(zip(history.bands, values, strict=True))} for step, *values in _rows(history)
    )
    out.writelines(f"{json.dumps(row)}\n" for row in rows)


def signal_table(history: SignalHistory) -> Table:
    """Return the rows as a table."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in ("step", *history.bands):
        table.add_column(name, justify="right")
    for step, *values in _rows(history):
        table.add_row(f"{step:,}", *("-" if value is None else f"{float(value):.6g}" for value in values))
    return table


def _rows(history: SignalHistory) -> Iterator[tuple[Any, ...]]:
    columns: list[list[JsonNumber]] = [[*map(json_number, history[name].tolist())] for name in history.bands]
    return zip(history.step.tolist(), *columns, strict=True)


def signals_command(
    run: Annotated[str, typer.Argument(metavar="PROJECT/RUN", help="A run of a running service.")],
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME]...", help="Signals or scalars; without any, their names.")
    ] = None,
    steps: Annotated[
        str, typer.Option(metavar="A:B", help="Steps A to B, both included; either may be left out.")
    ] = ":",
    points: Annotated[
        int | None, typer.Option(min=1, max=10_000, help="At most so many rows, each the newest of several steps.")
    ] = None,
    url: Annotated[str | None, typer.Option(help="URL of the service.")] = None,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV with a header.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON object per line.")] = False,
) -> None:
    """Print signals of a run by step, or the names of those it has."""
    with plain_errors(), service_of(url) as service:
        if as_csv and as_json:
            raise InvalidInput("--csv", "and --json were both given; give one of them")
        name = str(RunKey.parse(run))
        if not names:
            typer.echo("\n".join(service.signal_names(name)))
            return
        history = service.signals(name, names, parse_steps(steps), points=points)
        if as_csv:
            write_csv(history, typer.get_text_stream("stdout"))
        elif as_json:
            write_json_lines(history, typer.get_text_stream("stdout"))
        else:
            console().print(signal_table(history))
