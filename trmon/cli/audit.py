"""`trmon audit`: show and export the audit log."""

from __future__ import annotations

import csv
import json
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from typing import Annotated, Any

import typer

from trmon.cli.command import DataDir, console, parse_duration, plain_errors
from trmon.cli.database import open_store
from trmon.domain.access import EVERYTHING, AuditAction, AuditDocument, AuditEntry
from trmon.store import Store
from trmon.terminal.text import print_rows

PAGE_ENTRIES = 1000
SHOWN = ("at", "actor", "action", "project", "target", "before", "after")
FIELDS = tuple(AuditEntry.__annotations__)


def audit_command(
    project: Annotated[str | None, typer.Option(help="Only actions in this project.")] = None,
    actor: Annotated[str | None, typer.Option(help="Only actions of this token, of `local` or of `cli:USER`.")] = None,
    action: Annotated[AuditAction | None, typer.Option(help="Only this action.")] = None,
    since: Annotated[str | None, typer.Option(help="Only the time since, e.g. 90s, 30m, 24h or 7d.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="Maximum number of actions.")] = 100,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON object per line.")] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV with a header.")] = False,
    data_dir: DataDir = None,
) -> None:
    """Show administrative actions, newest first: when, who, what, before and after."""
    with plain_errors(), open_store(data_dir) as store:
        earliest = None if since is None else time.time() - parse_duration(since, field="--since")
        entries = _entries(store, limit=limit, project=project, actor=actor, action=action, since=earliest)
        if as_json:
            for entry in entries:
                typer.echo(json.dumps(_fields(entry)))
        elif as_csv:
            _write_csv(entries)
        else:
            _print_table(entries)


def _entries(store: Store, *, limit: int, **wanted: Any) -> Iterator[AuditEntry]:
    after = None
    while limit > 0:
        page = store.audit.list(access=EVERYTHING, after=after, limit=min(limit, PAGE_ENTRIES), **wanted)
        yield from page.items
        limit, after = limit - len(page.items), page.next
        if after is None:
            return


def _fields(entry: AuditEntry) -> dict[str, Any]:
    at = time.strftime("%FT%TZ", time.gmtime(entry.at))
    return {**asdict(entry), "at": at, "action": entry.action.value}


def _write_csv(entries: Iterable[AuditEntry]) -> None:
    writer = csv.DictWriter(sys.stdout, FIELDS, lineterminator="\n")
    writer.writeheader()
    for entry in entries:
        writer.writerow(_fields(entry) | {"before": _text(entry.before), "after": _text(entry.after)})


def _print_table(entries: Iterable[AuditEntry]) -> None:
    print_rows(console(), SHOWN, map(_cells, entries))


def _cells(entry: AuditEntry) -> Sequence[str]:
    at = time.strftime("%F %T", time.gmtime(entry.at))
    what = (entry.actor, entry.action.value, entry.project or "all", entry.target)
    return (at, *what, _text(entry.before), _text(entry.after))


def _text(document: AuditDocument | None) -> str:
    """Return a document as ASCII, so that no control character reaches the terminal."""
    return "" if document is None else json.dumps(document)
