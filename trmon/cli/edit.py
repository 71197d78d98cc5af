"""`trmon edit`: change owner and tags of runs, and archive them."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from trmon.cli.command import console, echo_json, plain_errors
from trmon.cli.running_service import service_of
from trmon.domain.errors import InvalidInput, TrmonError
from trmon.terminal.run_argument import parse_run_name
from trmon.terminal.run_table import run_table
from trmon_client.api.answers import encode_answer
from trmon_client.api.errors import NotFoundError, RequestRefused


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
