"""Tokens by the digest of their secret; the secret itself is never stored."""

from __future__ import annotations

from collections.abc import Collection
from concurrent.futures import Future
from dataclasses import replace
from typing import Any

from sqlalchemy import Connection, Select, insert, or_, select, update
from sqlalchemy.exc import IntegrityError

from trmon.domain.access import EVERYTHING, Access, AuditAction, AuditDocument, Scope, Token
from trmon.domain.errors import Conflict, NotFound, NotReady, Overloaded
from trmon.store.repositories.audit import write_audit
from trmon.store.rows.mapping import Codec, RowMapping, where_given
from trmon.store.schema import tables
from trmon.store.writing.repository import Repository
from trmon.store.writing.transaction import Transaction

USE_SECONDS = 60.0
"""How often the last use of a token is written."""

_token = tables.token.c
_SCOPES = Codec(
    encode=lambda scopes: sorted(scope.value for scope in scopes),
    decode=lambda stored: frozenset(Scope(scope) for scope in stored),
)
_TOKEN = RowMapping(Token, codecs={"scopes": _SCOPES}, generated={"id"})


class Tokens(Repository):
    """Reads and writes access tokens; a caller with one project only sees and changes that project's."""

    def create(
        self,
        *,
        name: str,
        digest: str,
        scopes: Collection[Scope],
        created_at: float,
        access: Access = EVERYTHING,
        project: str | None = None,
        expires_at: float | None = None,
    ) -> Token:
        """Add a token and return it when it is on disk. Errors: Conflict if its project has one of this name."""
        row = {
            "name": name,
            "digest": digest,
            "scopes": _SCOPES.encode(scopes),
            "project": project,
            "created_at": created_at,
            "expires_at": expires_at,
        }

        def add(transaction: Transaction) -> Token:
            token = _insert(transaction.connection, row)
            _audit(transaction, access, AuditAction.TOKEN_CREATE, at=created_at, after=token)
            return token

        return self._writer.submit(add).result()

    def by_digest(self, digest: str) -> Token | None:
        """Return the token of a digest, expired or not; None if it is unknown or revoked."""
        found = _select_tokens().where(_token.digest == digest)
        return next(map(_TOKEN.from_row, self._rows(found)), None)

    def list(self, *, access: Access) -> tuple[Token, ...]:
        """Return the tokens by name, including expired and replaced ones, without revoked ones."""
        found = where_given(_select_tokens(), {_token.project: access.project})
        return tuple(map(_TOKEN.from_row, self._rows(found.order_by(_token.name, _token.id))))

    def revoke(
        self, name: str, *, access: Access, now: float, project: str | None = None, force: bool = False
    ) -> Future[None]:
        """Revoke a token and those that it replaced; their rows stay.

        Args: project: as in `rotate`; force: even if no valid admin token of all projects is left.
        Errors, from the future: NotFound; Conflict for the last admin token, or if the name is ambiguous.
        """

        def end(transaction: Transaction) -> None:
            connection = transaction.connection
            token = _find(connection, name, access=access, project=project)
            if not force and _admins(connection, now=now, for_update=True) == {token.id}:
                raise Conflict(
                    f"{name!r} is the last admin token: create another one first, or run "
                    f"`trmon token revoke {name} --force` where the service's database is"
                )
            same = (_token.name == name) & (_token.project.is_not_distinct_from(token.project))
            connection.execute(update(tables.token).where(same).values(revoked_at=now))
            _audit(transaction, access, AuditAction.TOKEN_REVOKE, at=now, before=token)

        return self._writer.submit(end)

    def rotate(
        self,
        name: str,
        *,
        access: Access,
        now: float,
        digest: str,
        expires_at: float | None,
        overlap_seconds: float,
        project: str | None = None,
    ) -> Future[Token]:
        """Replace a token by a new one with the same name, scopes and project; the old one stays valid for the overlap.

        Args: project: the token's project; without it, the token of all projects or, if there is none, the only one
        of this name.
        Errors, from the future: NotFound; Conflict if the name is ambiguous.
        """

        def rotate(transaction: Transaction) -> Token:
            connection = transaction.connection
            old = _find(connection, name, access=access, project=project)
            end_at = now + overlap_seconds
            if old.expires_at is not None:
                end_at = min(end_at, old.expires_at)
            replaced = replace(old, replaced_at=now, expires_at=end_at)
            changed = {**_TOKEN.to_row(replaced), "revoked_at": None if overlap_seconds else now}
            connection.execute(update(tables.token).where(_token.id == old.id).values(changed))
            new = {"digest": digest, "created_at": now, "expires_at": expires_at, "last_used_at": None}
            token = _insert(connection, {**_TOKEN.to_row(old), **new})
            _audit(transaction, access, AuditAction.TOKEN_ROTATE, at=now, before=replaced, after=token)
            return token

        return self._writer.submit(rotate)

    def mark_used(self, token: Token, *, now: float) -> None:
        """Queue the write of a token's last use, at most once a minute; skip it while the writer is overloaded."""
        if token.last_used_at is not None and now - token.last_used_at < USE_SECONDS:
            return
        is_stale = or_(_token.last_used_at.is_(None), _token.last_used_at <= now - USE_SECONDS)
        used = update(tables.token).where(_token.id == token.id, is_stale).values(last_used_at=now)
        try:
            self._writer.submit(lambda transaction: transaction.connection.execute(used))
        except (Overloaded, NotReady):
            return

    def ever_created(self) -> bool:
        """Whether a token was ever created, even if all are expired or revoked."""
        return bool(self._rows(select(_token.id).limit(1)))

    def has_admin(self, *, now: float) -> bool:
        """Whether a valid admin token of all projects exists."""
        with self._reader.connect() as connection:
            return bool(_admins(connection, now=now))


def _audit(
    transaction: Transaction,
    access: Access,
    action: AuditAction,
    *,
    at: float,
    before: Token | None = None,
    after: Token | None = None,
) -> None:
    token = after or before
    assert token is not None
    write_audit(
        transaction.connection,
        access,
        action,
        token.name,
        at=at,
        project=token.project,
        before=_document(before),
        after=_document(after),
    )


def _document(token: Token | None) -> AuditDocument | None:
    if token is None:
        return None
    return {"token_id": token.id, "scopes": _SCOPES.encode(token.scopes), "expires_at": token.expires_at}


def _select_tokens() -> Select[Any]:
    return select(tables.token).where(_token.revoked_at.is_(None))


def _insert(connection: Connection, row: dict[str, Any]) -> Token:
    try:
        added = connection.execute(insert(tables.token).returning(*tables.token.c), row)
    except IntegrityError as error:
        raise Conflict(f"token {row['name']!r} already exists; revoke or rotate it, or choose another name") from error
    return _TOKEN.from_row(added.one())


def _find(connection: Connection, name: str, *, access: Access, project: str | None) -> Token:
    """Return the current token of a name. Errors: NotFound; Conflict if several projects have one."""
    found = _select_tokens().where(_token.name == name, _token.replaced_at.is_(None))
    found = where_given(where_given(found, {_token.project: access.project}), {_token.project: project})
    named = [_TOKEN.from_row(row) for row in connection.execute(found.with_for_update())]
    match [token for token in named if token.project is None] or named:
        case []:
            raise NotFound("token", name)
        case [token]:
            return token
        case several:
            projects = ", ".join(sorted(token.project or "" for token in several))
            raise Conflict(f"several projects have a token {name!r}; name the project, one of {projects}")


def _admins(connection: Connection, *, now: float, for_update: bool = False) -> set[int]:
    """Return the ids of the valid admin tokens of all projects.

    Args: for_update: lock them until the transaction ends, so that no other process revokes them meanwhile.
    """
    found = _select_tokens().where(_token.project.is_(None), _token.replaced_at.is_(None)).order_by(_token.id)
    rows = connection.execute(found.with_for_update() if for_update else found)
    tokens = map(_TOKEN.from_row, rows)
    return {token.id for token in tokens if Scope.ADMIN in token.scopes and token.is_valid(now=now)}
