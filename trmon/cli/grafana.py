"""`trmon grafana`: push the dashboards to a Grafana."""

from __future__ import annotations

from typing import Annotated

import typer

from trmon.cli.command import plain_errors, read_settings
from trmon.domain.errors import InvalidInput
from trmon.grafana.push import grafana as opened
from trmon.grafana.push import push, shipped

grafana = typer.Typer(no_args_is_help=True, help="Push the dashboards to a Grafana.")


@grafana.command("push")
def push_dashboards(
    url: Annotated[str | None, typer.Option(help="URL of Grafana; default: TRMON_GRAFANA_URL.")] = None,
    token: Annotated[str | None, typer.Option(help="Token of a service account; prefer TRMON_GRAFANA_TOKEN.")] = None,
) -> None:
    """Create or update the folder and the dashboards in a Grafana; safe to repeat."""
    with plain_errors():
        settings = read_settings(grafana_url=url, grafana_token=token)
        if settings.grafana_token is None:
            raise InvalidInput("--token", "or TRMON_GRAFANA_TOKEN is required; create a token for a service account")
        with opened(settings.grafana_url, token=settings.grafana_token.get_secret_value()) as api:
            for pushed in push(api, shipped()):
                address = f"{settings.grafana_url.rstrip('/')}{pushed.path}"
                typer.echo(f"{pushed.change.value:<9}  {pushed.kind} {pushed.title}: {address}")
