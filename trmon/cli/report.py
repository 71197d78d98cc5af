"""`trmon report`: write a run as one HTML file to share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from trmon.cli.command import plain_errors
from trmon.cli.running_service import service_of
from trmon.domain.errors import InvalidInput
from trmon.terminal.run_argument import parse_run_name


def report_command(
    run: Annotated[str, typer.Argument(metavar="PROJECT/RUN", help="A run of a running service.")],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="The file to write.")],
    force: Annotated[bool, typer.Option("--force", help="Replace the file if it exists.")] = False,
    url: Annotated[str | None, typer.Option(help="URL of the service.")] = None,
) -> None:
    """Write a run as one HTML file that needs no service: verdict, course, alerts, policies and notes."""
    with plain_errors(), service_of(url) as service:
        if output.exists() and not force:
            raise InvalidInput("--output", f"{output} exists; choose another file, or give --force")
        page = service.report(str(parse_run_name(run)))
        output.write_bytes(page)
        typer.echo(f"{output}: {len(page) / 1000:.0f} kB")
