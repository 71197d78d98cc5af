"""`trmon mcp`: answer an assistant's questions about runs."""

from __future__ import annotations

from typing import Annotated

import typer

from trmon.cli.command import plain_errors
from trmon.cli.running_service import service_of
from trmon.domain.errors import needs_package


def mcp_command(url: Annotated[str | None, typer.Option(help="URL of the service.")] = None) -> None:
    """Answer an assistant's questions about runs by the Model Context Protocol, over stdio; it changes nothing.

    The token is that of TRMON_TOKEN or TRMON_TOKEN_FILE. Needs the extra `mcp`.
    """
    with plain_errors(), needs_package("mcp", said="trmon mcp needs"), service_of(url) as service:
        from trmon.assistants.server import build_server

        build_server(service).run("stdio")
