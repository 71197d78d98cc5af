"""`trmon show`: one run, in a page of text."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from trmon.cli.command import asked, console, failing_plainly
from trmon.terminal.api_client import run_of
from trmon.terminal.run_detail import portrait_of
from trmon.terminal.run_page import show as show_portrait


def show(
    run: Annotated[str, typer.Argument(metavar="PROJECT/RUN", help="A run of a running service.")],
    url: Annotated[str | None, typer.Option(help="The service to ask.")] = None,
) -> None:
    """Show a run: its verdict, what fires, the cause, its evidence and remedy, its signals and what policies reject."""
    with failing_plainly():
        portrait = portrait_of(asked(url), run_of(run))
        show_portrait(portrait, console(), now=time.time())
