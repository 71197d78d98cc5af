"""`trmon ingest`: upload what clients spooled."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Annotated

import typer

from trmon.cli.command import plain_errors, read_settings
from trmon.terminal.spool_upload import SpoolUploader, segments_in


def ingest(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="A spool directory of the client.")],
    url: Annotated[str | None, typer.Option(help="URL of the service.")] = None,
) -> None:
    """Upload spooled messages to a running service; safe to repeat: the files are kept."""
    with plain_errors():
        settings = read_settings(url=url)
        sender = SpoolUploader(settings.url, token=settings.token.get_secret_value() if settings.token else None)
        counts: Counter[str] = Counter()
        for segment in segments_in(directory):
            counts += sender.send(segment)
        sender.close()
        typer.echo(", ".join(f"{n} {status}" for status, n in sorted(counts.items())) or "nothing to send")
        if counts["invalid"] or counts["conflict"] or counts["damaged"]:
            raise typer.Exit(1)
