"""`trmon signals`: print signals of a run, or the names of those it has."""

from __future__ import annotations

from typing import Annotated

import typer

from trmon.cli.command import console, plain_errors
from trmon.cli.running_service import service_of
from trmon.domain.errors import InvalidInput
from trmon.terminal.run_argument import parse_run_name, parse_steps
from trmon.terminal.signal_rows import signal_table, write_csv, write_json_lines


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
        name = str(parse_run_name(run))
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
