"""`trmon token`: manage API tokens."""

from __future__ import annotations

import time
from typing import Annotated

import typer
from rich.table import Table

from trmon.api.http.auth import digest_of, new_secret
from trmon.cli.command import DataDir, console, open_store, plain_errors
from trmon.domain.model.access import Scope
from trmon.domain.model.identity import checked_name

SECONDS_PER_DAY = 86_400.0

token = typer.Typer(no_args_is_help=True, help="Create, list and revoke API tokens.")


@token.command("create")
def create_token_command(
    name: Annotated[str, typer.Argument(help="Name of the token.")],
    scope: Annotated[list[Scope], typer.Option(help="A scope; repeat the option for several.")],
    project: Annotated[str | None, typer.Option(help="Limit the token to this project.")] = None,
    days: Annotated[float, typer.Option(min=0.001, max=36_500, help="Days until it expires.")] = 365.0,
    data_dir: DataDir = None,
) -> None:
    """Create a token and print it; it cannot be shown again."""
    with plain_errors(), open_store(data_dir, making=True) as store:
        secret, now = new_secret(), time.time()
        store.tokens.create(
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
    """List the tokens, without their secrets."""
    with plain_errors(), open_store(data_dir) as store:
        table = Table("name", "scopes", "project", "expires")
        for known in store.tokens.list():
            scopes = ", ".join(sorted(scope.value for scope in known.scopes))
            expires = "never" if known.expires_at is None else time.strftime("%F", time.gmtime(known.expires_at))
            table.add_row(known.name, scopes, known.project or "all", expires)
        console().print(table)


@token.command("revoke")
def revoke_token_command(name: Annotated[str, typer.Argument()], data_dir: DataDir = None) -> None:
    """Revoke a token; a running service refuses it within two seconds."""
    with plain_errors(), open_store(data_dir) as store:
        store.tokens.revoke(name).result()
        typer.echo(f"revoked {name}")
