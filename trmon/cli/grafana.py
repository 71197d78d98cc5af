"""`trmon grafana`: the dashboards in somebody's Grafana."""

from __future__ import annotations

from typing import Annotated

import typer

from trmon.cli.command import plain_errors, read_settings
from trmon.domain.model.errors import InvalidInput
from trmon.grafana.api import grafana as opened
from trmon.grafana.dashboards import shipped
from trmon.grafana.push import push

grafana = typer.Typer(no_args_is_help=True, help="Put the dashboards into a Grafana.")


@grafana.command("push")
def push_dashboards(
    url: Annotated[str | None, typer.Option(help="Grafana's address; else TRMON_GRAFANA_URL.")] = None,
    token: Annotated[str | None, typer.Option(help="A service account's token; better in TRMON_GRAFANA_TOKEN.")] = None,
    prometheus_url: Annotated[
        str | None, typer.Option(help="Also make a data source of the Prometheus that Grafana finds here.")
    ] = None,
) -> None:
    """Create or update the folder and the dashboards in a Grafana; again changes nothing."""
    with plain_errors():
        settings = read_settings(grafana_url=url, grafana_token=token)
        if settings.grafana_token is None:
            raise InvalidInput("--token", "is needed, or TRMON_GRAFANA_TOKEN; make one for a service account")
        with opened(settings.grafana_url, token=settings.grafana_token.get_secret_value()) as api:
            for pushed in push(api, shipped(), prometheus_url=prometheus_url):
                address = f"{settings.grafana_url.rstrip('/')}{pushed.path}"
                typer.echo(f"{pushed.change.value:<9}  {pushed.kind} {pushed.title}: {address}")
