"""`trmon show`: one run, in a page of text."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from trmon.app.asking import run_of
from trmon.app.terminal.portrait import portrait_of
from trmon.app.terminal.run import show as show_portrait
from trmon.cli.edge import asked, console, failing_plainly


def show(
    run: Annotated[str, typer.Argument(metavar="PROJECT/RUN", help="A run of a running service.")],
    url: Annotated[str | None, typer.Option(help="The service to ask.")] = None,
) -> None:
    """Show a run: its verdict, what fires, the cause, its evidence and remedy, its signals and what policies reject."""
    with failing_plainly():
        portrait = portrait_of(asked(url), run_of(run))
        show_portrait(portrait, console(), now=time.time())
