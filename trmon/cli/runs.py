"""`trmon runs`: list runs."""

from __future__ import annotations

import time
from itertools import islice
from typing import Annotated

import typer

from trmon.cli.command import console, echo_json, plain_errors
from trmon.cli.running_service import service_of
from trmon.domain.runs.run import RunState
from trmon.terminal.run_table import run_table
from trmon_client.api.answers import encode_answer


def runs_command(
    project: Annotated[str | None, typer.Option(help="Only runs of this project.")] = None,
    state: Annotated[RunState | None, typer.Option(help="Only runs in this state.")] = None,
    tag: Annotated[str | None, typer.Option(help="Only runs with this tag.")] = None,
    owner: Annotated[str | None, typer.Option(help="Only runs of this owner.")] = None,
    archived: Annotated[bool, typer.Option("--archived", help="The archived runs instead.")] = False,
    limit: Annotated[int, typer.Option(min=1, help="Maximum number of runs.")] = 100,
    url: Annotated[str | None, typer.Option(help="URL of the service.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON object per line.")] = False,
) -> None:
    """List runs, newest first: state, newest step, owner, tags and firing rules."""
    with plain_errors(), service_of(url) as service:
        found = service.runs(project, state=state.value if state else None, tag=tag, owner=owner, archived=archived)
        runs = islice(found, limit)
        if as_json:
            for run in runs:
                echo_json(encode_answer(run))
        else:
            console().print(run_table(runs, now=time.time()))
