"""`trmon token`: create, list, rotate and revoke API tokens."""

from __future__ import annotations

import time
from typing import Annotated

import typer
from rich.table import Table

from trmon.api.http.auth import digest_of, new_secret
from trmon.cli.command import DataDir, console, parse_duration, plain_errors
from trmon.cli.database import new_database_said, open_store, operator
from trmon.domain.access import EVERYTHING, Scope, Token
from trmon.domain.identity import checked_name

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
