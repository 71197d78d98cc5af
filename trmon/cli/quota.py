"""`trmon quota`: limit what projects store and send."""

from __future__ import annotations

import time
from typing import Annotated

import typer
from rich.table import Table

from trmon.cli.command import DataDir, console, plain_errors
from trmon.cli.database import open_store, operator
from trmon.domain.access import EVERYTHING, Quota
from trmon.domain.identity import checked_name

MAX_LIMIT = 1 << 62

quota = typer.Typer(no_args_is_help=True, help="Limit what projects store and send.")


@quota.command("set")
def set_quota_command(
    project: Annotated[str, typer.Argument(help="The project.")],
    runs: Annotated[int | None, typer.Option(min=0, max=MAX_LIMIT, help="Maximum number of runs.")] = None,
    n_bytes: Annotated[
        int | None, typer.Option("--bytes", min=0, max=MAX_LIMIT, help="Maximum of stored report bytes.")
    ] = None,
    rate: Annotated[
        float | None, typer.Option(min=0.001, max=1e9, help="Maximum reports a second, for each API process.")
    ] = None,
    data_dir: DataDir = None,
) -> None:
    """Replace the limits of a project; one that is not given is none. A running service follows within 5 seconds."""
    with plain_errors(), open_store(data_dir) as store:
        wanted = Quota(
            project=checked_name(project, field="PROJECT"), max_runs=runs, max_bytes=n_bytes, reports_per_second=rate
        )
        store.quotas.put(wanted, access=operator(), now=time.time()).result()
        typer.echo(f"{project}: {_limits(wanted)}")


@quota.command("list")
def list_quotas_command(data_dir: DataDir = None) -> None:
    """List the limits of projects and what they use."""
    with plain_errors(), open_store(data_dir) as store:
        table = Table("project", "limits", "runs", "report bytes")
        for known in store.quotas.list(access=EVERYTHING):
            usage = store.quotas.usage(known.project)
            table.add_row(known.project, _limits(known), str(len(usage.runs)), str(usage.report_bytes))
        console().print(table)


def _limits(known: Quota) -> str:
    return ", ".join(f"{resource.value} {limit:.15g}" for resource, limit in known.limits().items()) or "no limit"
