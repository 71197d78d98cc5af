"""`trmon diff`: compare runs."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from trmon.cli.command import console, plain_errors
from trmon.cli.running_service import service_of
from trmon.terminal.comparison_text import print_comparison
from trmon.terminal.run_argument import parse_run_name
from trmon_client.api.answers import encode_answer


def diff_command(
    runs: Annotated[
        list[str],
        typer.Argument(metavar="PROJECT/RUN...", help="2 to 8 runs; a single one is compared with a sound sibling."),
    ],
    by: Annotated[
        Literal["step", "time"], typer.Option(help="Align by step, or by the time since the start.")
    ] = "step",
    url: Annotated[str | None, typer.Option(help="URL of the service.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the comparison as JSON.")] = False,
) -> None:
    """Print where runs part, in which signal first, and how their verdicts, policies and configurations differ."""
    with plain_errors(), service_of(url) as service:
        found = service.diff([str(parse_run_name(run)) for run in runs], by=by)
        if as_json:
            typer.echo(encode_answer(found))
        else:
            print_comparison(found, console())
