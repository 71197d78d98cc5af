"""`trmon diagnose`: print what is wrong with a run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from trmon.cli.command import api_client_of, console, plain_errors
from trmon.domain.model.errors import InvalidInput
from trmon.terminal import diagnosis_query
from trmon.terminal.diagnosis_text import print_diagnosis


def diagnose_command(
    run: Annotated[str | None, typer.Argument(metavar="PROJECT/RUN", help="A run of a running service.")] = None,
    metrics: Annotated[
        Path | None, typer.Option(help="Read a JSON object of signals under trmon's, verl's or TRL's names instead.")
    ] = None,
    url: Annotated[str | None, typer.Option(help="URL of the service.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the API's JSON.")] = False,
) -> None:
    """Print what is wrong with a run or a log line, since when, and what to change."""
    with plain_errors():
        if metrics is not None:
            if run is not None:
                raise InvalidInput("RUN", "and --metrics were both given; give one of them")
            found = diagnosis_query.diagnose_metrics(metrics)
        else:
            found = diagnosis_query.fetch_diagnosis(run or "", client=api_client_of(url))
        if as_json:
            typer.echo(found.model_dump_json(indent=2))
        else:
            print_diagnosis(found, console())
