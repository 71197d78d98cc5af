"""`trmon delete`: delete a run."""

from __future__ import annotations

from typing import Annotated

import typer

from trmon.cli.command import plain_errors
from trmon.cli.running_service import service_of
from trmon.terminal.run_argument import parse_run_name


def delete_command(
    run: Annotated[str, typer.Argument(metavar="PROJECT/RUN", help="A run of a running service.")],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    url: Annotated[str | None, typer.Option(help="URL of the service.")] = None,
) -> None:
    """Delete a run with all its data, after asking; needs a token with the scope admin."""
    with plain_errors(), service_of(url) as service:
        name = str(parse_run_name(run))
        if not yes:
            found = service.run(name)
            step = "without a step" if found.last_step is None else f"at step {found.last_step:,}"
            typer.confirm(f"Delete {name} ({found.state}, {step}) with all its data?", abort=True)
        service.delete(name)
        typer.echo(f"deleted {name}")
