"""`trmon whatif`: evaluate other policies over stored sequences."""

from __future__ import annotations

from typing import Annotated

import typer

from trmon.cli.command import console, plain_errors
from trmon.cli.running_service import api_client_of
from trmon.terminal import whatif_query
from trmon.terminal.whatif_text import print_whatif


def whatif_command(
    run: Annotated[str, typer.Argument(metavar="PROJECT/RUN", help="A run of a running service.")],
    policy: Annotated[
        list[str],
        typer.Option(
            help="A preset, a preset with bounds such as trm_max(delta=0.02), or JSON; repeat the option for several."
        ),
    ],
    from_step: Annotated[int | None, typer.Option("--from", min=0, help="The first step.")] = None,
    to_step: Annotated[int | None, typer.Option("--to", min=0, help="The last step.")] = None,
    max_steps: Annotated[int, typer.Option(min=1, help="Maximum number of steps; the newest are used.")] = 1000,
    url: Annotated[str | None, typer.Option(help="URL of the service.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the API's JSON, one line per policy.")] = False,
) -> None:
    """Print what policies would have masked of a run's stored sequences, beside what was masked."""
    with plain_errors():
        policies = [whatif_query.parse_policy_argument(text) for text in policy]
        service = api_client_of(url, timeout_seconds=whatif_query.TIMEOUT_SECONDS)
        window = {"from_step": from_step, "to_step": to_step, "max_steps": max_steps}
        found = [whatif_query.fetch_whatif(run, tried, client=service, **window) for tried in policies]
        if as_json:
            for effect in found:
                typer.echo(effect.model_dump_json())
        else:
            print_whatif(found, console())
