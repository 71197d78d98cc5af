"""`trmon token`, `trmon quota` and `trmon audit`: API tokens, limits of projects, and what was changed."""

from __future__ import annotations

import csv
import json
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from typing import Annotated, Any

import typer
from rich.table import Table

from trmon.api.http.auth import digest_of, new_secret
from trmon.cli.command import DataDir, console, parse_duration, plain_errors
from trmon.cli.database import new_database_said, open_store, operator
from trmon.domain.access import EVERYTHING, AuditAction, AuditDocument, AuditEntry, Quota, Scope, Token
from trmon.domain.identity import checked_name
from trmon.store import Store
from trmon.terminal.text import print_rows

SECONDS_PER_DAY = 86_400.0

token = typer.Typer(no_args_is_help=True, help="Create, list, rotate and revoke API tokens.")

Days = Annotated[float, typer.Option(min=0.001, max=36_500, help="Days until it expires.")]
Project = Annotated[str | None, typer.Option(help="The token's project, if tokens of several projects have this name.")]


@token.command("create")
def create_token_command(
    name: Annotated[str, typer.Argument(help="Name of the token.")],
    scope: Annotated[list[Scope], typer.Option(help="A scope; repeat the option for several.")],
    project: Annotated[str | None, typer.Option(help="Limit the token to this project.")] = None,
    days: Days = 365.0,
    data_dir: DataDir = None,
) -> None:
    """Create a token and print it; it cannot be shown again. Works without a token, with access to the database."""
    with plain_errors(), new_database_said(data_dir), open_store(data_dir, making=True) as store:
        secret, now = new_secret(), time.time()
        store.tokens.create(
            access=operator(),
            name=checked_name(name, field="NAME"),
            digest=digest_of(secret),
            scopes=set(scope),
            project=None if project is None else checked_name(project, field="--project"),
            created_at=now,
            expires_at=now + days * SECONDS_PER_DAY,
        )
        typer.echo(secret)


@token.command("list")
def list_tokens_command(data_dir: DataDir = None) -> None:
    """List the tokens with their last use, without their secrets."""
    with plain_errors(), open_store(data_dir) as store:
        table = Table("name", "scopes", "project", "expires", "last used")
        for known in store.tokens.list(access=EVERYTHING):
            scopes = ", ".join(sorted(scope.value for scope in known.scopes))
            used = "never" if known.last_used_at is None else _shown(known.last_used_at)
            table.add_row(known.name, scopes, known.project or "all", _expiry(known), used)
        console().print(table)


@token.command("rotate")
def rotate_token_command(
    name: Annotated[str, typer.Argument(help="Name of the token.")],
    overlap: Annotated[
        str, typer.Option(help="How long the old secret stays valid, e.g. 90s, 30m, 24h or 7d; 0s ends it at once.")
    ] = "24h",
    days: Days = 365.0,
    project: Project = None,
    data_dir: DataDir = None,
) -> None:
    """Replace a token's secret and print the new one; scopes and project stay."""
    with plain_errors(), open_store(data_dir) as store:
        secret, now = new_secret(), time.time()
        store.tokens.rotate(
            name,
            access=operator(),
            project=project,
            now=now,
            digest=digest_of(secret),
            expires_at=now + days * SECONDS_PER_DAY,
            overlap_seconds=parse_duration(overlap, field="--overlap"),
        ).result()
        typer.echo(secret)


@token.command("revoke")
def revoke_token_command(
    name: Annotated[str, typer.Argument(help="Name of the token.")],
    force: Annotated[bool, typer.Option("--force", help="Revoke it even if no other admin token is valid.")] = False,
    project: Project = None,
    data_dir: DataDir = None,
) -> None:
    """Revoke a token; a running service refuses it within two seconds."""
    with plain_errors(), open_store(data_dir) as store:
        store.tokens.revoke(name, access=operator(), project=project, now=time.time(), force=force).result()
        typer.echo(f"revoked {name}")


def _expiry(known: Token) -> str:
    if known.expires_at is None:
        return "never"
    return _shown(known.expires_at) + (" (replaced)" if known.replaced_at else "")


def _shown(at: float) -> str:
    return time.strftime("%F %H:%M", time.gmtime(at))


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
            print_rows(console(), SHOWN, map(_cells, entries))


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


def _cells(entry: AuditEntry) -> Sequence[str]:
    at = time.strftime("%F %T", time.gmtime(entry.at))
    what = (entry.actor, entry.action.value, entry.project or "all", entry.target)
    return (at, *what, _text(entry.before), _text(entry.after))


def _text(document: AuditDocument | None) -> str:
    """Return a document as ASCII, so that no control character reaches the terminal."""
    return "" if document is None else json.dumps(document)
