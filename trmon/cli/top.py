"""`trmon top`: watch all runs."""

from __future__ import annotations

from typing import Annotated

import typer

from trmon.cli.command import console, plain_errors
from trmon.cli.running_service import service_of
from trmon.domain.identity import checked_name
from trmon.terminal import follow_fleet


def top(
    project: Annotated[str | None, typer.Option(help="Only runs of this project.")] = None,
    every: Annotated[float, typer.Option(min=0.2, help="Seconds between refreshes.")] = 2.0,
    once: Annotated[
        bool, typer.Option("--once", help="Print one frame and exit; the default if the output is not a terminal.")
    ] = False,
    url: Annotated[str | None, typer.Option(help="URL of the service.")] = None,
) -> None:
    """Show every run with its verdict, the most urgent first, until interrupted."""
    with plain_errors(), service_of(url) as service:
        terminal = console()
        project = None if project is None else checked_name(project, field="--project")
        if once or not terminal.is_terminal:
            follow_fleet.print_fleet(service, project=project, console=terminal)
        else:
            follow_fleet.follow_fleet(service, project=project, console=terminal, every_seconds=every)
