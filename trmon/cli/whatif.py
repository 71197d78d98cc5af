"""`trmon whatif`: evaluate other policies over stored sequences."""

from __future__ import annotations

from typing import Annotated

import typer

from trmon.cli.command import console, echo_json, plain_errors
from trmon.cli.running_service import service_of
from trmon.terminal.policy_argument import parse_policy_argument
from trmon.terminal.run_argument import parse_run_name
from trmon.terminal.whatif_text import print_whatif
from trmon_client.api.answers import encode_info


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
        policies = [parse_policy_argument(text) for text in policy]
        name, steps = str(parse_run_name(run)), (from_step, to_step)
        with service_of(url) as service:
            found = [service.what_if(name, tried.spec(), steps, max_steps=max_steps) for tried in policies]
        if as_json:
            for effect in found:
                echo_json(encode_info(effect))
        else:
            print_whatif(found, console())
