"""`trmon diagnose`: what is wrong with a run, in words."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from trmon.cli.command import asked, console, failing_plainly
from trmon.domain.model.errors import InvalidInput
from trmon.terminal import diagnosis_query
from trmon.terminal.diagnosis_text import show


def diagnose(
    run: Annotated[str | None, typer.Argument(metavar="PROJECT/RUN", help="A run of a running service.")] = None,
    metrics: Annotated[
        Path | None, typer.Option(help="Instead, a JSON object of signals under our, verl's or TRL's names.")
    ] = None,
    url: Annotated[str | None, typer.Option(help="The service to ask.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print what the API answers.")] = False,
) -> None:
    """Say what is wrong with a run, since when, and what to change; of a run, or of anybody's log line."""
    with failing_plainly():
        if metrics is not None:
            if run is not None:
                raise InvalidInput("RUN", "and --metrics were both given; give one of them")
            found = diagnosis_query.of_metrics(metrics)
        else:
            found = diagnosis_query.of_run(run or "", asked=asked(url))
        if as_json:
            typer.echo(found.model_dump_json(indent=2))
        else:
            show(found, console())
