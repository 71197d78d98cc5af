"""`trmon ingest`: upload what clients spooled."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Annotated

import typer

from trmon.cli.command import plain_errors
from trmon.cli.running_service import uploader_to
from trmon.terminal.spool_upload import segments_in, send_segment


def ingest(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="A spool directory of the client.")],
    url: Annotated[str | None, typer.Option(help="URL of the service.")] = None,
) -> None:
    """Upload spooled messages to a running service; safe to repeat: the files are kept."""
    with plain_errors():
        uploader = uploader_to(url)
        counts: Counter[str] = Counter()
        for segment in segments_in(directory):
            counts += send_segment(segment, uploader)
        uploader.close()
        typer.echo(", ".join(f"{n} {status}" for status, n in sorted(counts.items())) or "nothing to send")
        if counts["invalid"] or counts["conflict"] or counts["damaged"]:
            raise typer.Exit(1)
