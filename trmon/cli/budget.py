"""`trmon budget`: print what a run's mismatch and lag leave room for."""

from __future__ import annotations

from typing import Annotated

import typer

from trmon.cli.command import console, plain_errors
from trmon.cli.running_service import service_of
from trmon.terminal.budget_text import print_budget
from trmon.terminal.run_argument import parse_run_name
from trmon_client.api.answers import encode_answer


def budget_command(
    run: Annotated[str, typer.Argument(metavar="PROJECT/RUN", help="A run of a running service.")],
    url: Annotated[str | None, typer.Option(help="URL of the service.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the budget as JSON.")] = False,
) -> None:
    """Print which mismatch and lag a run can bear, where its drift comes from, and the advice for its pipeline."""
    with plain_errors(), service_of(url) as service:
        found = service.budget(str(parse_run_name(run)))
        if as_json:
            typer.echo(encode_answer(found))
        else:
            print_budget(found, console())
