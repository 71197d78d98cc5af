"""`trmon show`: print one run."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from trmon.cli.command import console, plain_errors
from trmon.cli.running_service import service_of
from trmon.terminal.run_argument import parse_run_name
from trmon.terminal.run_detail import fetch_run_detail
from trmon.terminal.run_page import print_run


def show(
    run: Annotated[str, typer.Argument(metavar="PROJECT/RUN", help="A run of a running service.")],
    url: Annotated[str | None, typer.Option(help="URL of the service.")] = None,
) -> None:
    """Print a run: verdict, alerts, cause, evidence, remedy, signals and what policies reject."""
    with plain_errors(), service_of(url) as service:
        print_run(fetch_run_detail(service, parse_run_name(run)), console(), now=time.time())
