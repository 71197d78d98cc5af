"""`trmon ingest`: upload what clients spooled."""

from __future__ import annotations

from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer

from trmon.cli.command import echo_error, plain_errors
from trmon.cli.running_service import ReportUploader, bundled, uploader_to
from trmon.domain.errors import InvalidInput
from trmon_client.core.wire.segments import SUFFIX, SegmentError, scan_segment


def segments_in(directory: Path) -> list[Path]:
    """Return the segment files under a directory, oldest first for each process. Errors: InvalidInput if none."""
    if not directory.is_dir():
        wrong = "is a file; give its folder" if directory.exists() else "is not there"
        raise InvalidInput("DIR", f"{directory} {wrong}")
    found = sorted(directory.rglob(f"*{SUFFIX}"))
    if not found:
        where = "pass the client's spool directory, as its trainer's user"
        raise InvalidInput("DIR", f"{directory} contains no segments (*{SUFFIX}) that you may read; {where}")
    return found


def send_segment(segment: Path, uploader: ReportUploader) -> Counter[str]:
    """Send one segment, whose file is kept, and return the counts of its messages by outcome, damaged ones too.

    A file that cannot be read counts as one.

    Errors: ServiceError.
    """
    try:
        found = scan_segment(segment.read_bytes())
    except SegmentError:
        return Counter(damaged=1)
    except OSError as error:
        echo_error(f"trmon: {segment}: {error.strerror}")
        return Counter(unreadable=1)
    counts = Counter(damaged=found.n_damaged + bool(found.torn_bytes))
    for bundle in bundled(found.messages):
        counts.update(ack.status for ack in uploader.post(bundle).acks)
    return counts


def ingest(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="A spool directory of the client.")],
    url: Annotated[str | None, typer.Option(help="URL of the service.")] = None,
) -> None:
    """Upload spooled messages to a running service; safe to repeat: the files are kept."""
    with plain_errors():
        counts: Counter[str] = Counter()
        with closing(uploader_to(url)) as uploader:
            for segment in segments_in(directory):
                counts += send_segment(segment, uploader)
        typer.echo(", ".join(f"{n} {status}" for status, n in sorted(counts.items())) or "nothing to send")
        if counts["invalid"] or counts["conflict"] or counts["damaged"] or counts["unreadable"]:
            raise typer.Exit(1)
