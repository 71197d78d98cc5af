"""`trmon runs`: list runs."""

from __future__ import annotations

import time
from collections.abc import Iterable
from itertools import islice
from typing import Annotated

import typer
from rich import box
from rich.table import Table
from rich.text import Text

from trmon.cli.command import console, echo_json, plain_errors
from trmon.cli.running_service import service_of
from trmon.domain.errors import InvalidInput, TrmonError
from trmon.domain.runs.run import RunState
from trmon.terminal.arguments import parse_run_name
from trmon.terminal.text import last_seen_text
from trmon_client.api import RunInfo
from trmon_client.api.answers import encode_answer
from trmon_client.api.errors import NotFoundError, RequestRefused


def run_table(runs: Iterable[RunInfo], *, now: float) -> Table:
    """Return the table of runs. Args: now: seconds since the epoch."""
    table = Table("run", "state", box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("step", justify="right")
    for column in ("seen", "owner", "tags", "firing"):
        table.add_column(column, overflow="fold")
    for run in runs:
        step = "-" if run.last_step is None else f"{run.last_step:,}"
        cells = (
            last_seen_text(run.last_report_at, now=now),
            run.owner or "",
            ", ".join(run.tags),
            ", ".join(run.firing),
        )
        table.add_row(*map(Text, (run.name, run.state, step, *cells)))
    return table


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


def edit_command(
    runs: Annotated[list[str], typer.Argument(metavar="PROJECT/RUN...", help="Runs of a running service.")],
    owner: Annotated[str | None, typer.Option(help="The new owner.")] = None,
    tag: Annotated[list[str] | None, typer.Option(help="A tag to add; repeat for several.")] = None,
    untag: Annotated[list[str] | None, typer.Option(help="A tag to remove; repeat for several.")] = None,
    archive: Annotated[
        bool | None, typer.Option("--archive/--unarchive", help="Take the runs out of the fleet, or back into it.")
    ] = None,
    url: Annotated[str | None, typer.Option(help="URL of the service.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON object per line.")] = False,
) -> None:
    """Change the owner and the tags of runs, archive them, or take them back; needs a token with the scope admin."""
    with plain_errors(), service_of(url) as service:
        if owner is None and archive is None and not tag and not untag:
            raise InvalidInput("options", "give at least one of --owner, --tag, --untag, --archive and --unarchive")
        names = [str(parse_run_name(run)) for run in dict.fromkeys(runs)]
        changed, refused = [], []
        for name in names:
            try:
                changed.append(
                    service.change(name, owner=owner, add_tags=tag or (), remove_tags=untag or (), archived=archive)
                )
            except (NotFoundError, RequestRefused) as error:  # of this run alone: the others are changed
                refused.append(f"{name}: {error}")
        if as_json:
            for run in changed:
                echo_json(encode_answer(run))
        elif changed:
            console().print(run_table(changed, now=time.time()))
        if refused:
            raise TrmonError(f"{len(refused)} of {len(names)} runs not changed: {'; '.join(refused)}")


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
