"""`trmon mcp`: answer an assistant's questions about runs."""

from __future__ import annotations

from typing import Annotated

import typer

from trmon.cli.command import needs_package, plain_errors
from trmon.cli.running_service import service_of

LOOPBACK = "127.0.0.1"


def mcp_command(
    url: Annotated[str | None, typer.Option(help="URL of the service.")] = None,
    http_port: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=65_535,
            help="Serve streamable HTTP on this port of the loopback address instead of stdio; each request then "
            "brings its own token.",
        ),
    ] = None,
) -> None:
    """Answer an assistant's questions about runs by the Model Context Protocol, over stdio; it changes nothing.

    The token is that of TRMON_TOKEN or TRMON_TOKEN_FILE. Needs the extra `mcp`.
    """
    with plain_errors(), needs_package("mcp", what="trmon mcp"), service_of(url) as service:
        from trmon.assistants.server import build_server, caller_by_token, one_caller

        if http_port is None:
            build_server(one_caller(service)).run("stdio")
        else:
            server = build_server(caller_by_token(service.url))
            typer.echo(f"http://{LOOPBACK}:{http_port}/mcp", err=True)
            server.run("streamable-http", host=LOOPBACK, port=http_port, stateless_http=True, json_response=True)
