"""Tokens by the digest of their secret; the secret itself is never stored."""

from __future__ import annotations

from collections.abc import Collection
from concurrent.futures import Future

from sqlalchemy import Engine, delete, insert, select
from sqlalchemy.exc import IntegrityError

from trmon.domain.model.access import Scope, Token
from trmon.domain.model.errors import Conflict, NotFound
from trmon.store.rows.row_mapping import Codec, RowMapping
from trmon.store.schema import tables
from trmon.store.writing.group_commit import GroupCommit
from trmon.store.writing.transaction import Transaction

_SCOPES = Codec(
    encode=lambda scopes: sorted(scope.value for scope in scopes),
    decode=lambda stored: frozenset(Scope(scope) for scope in stored),
)
_TOKEN = RowMapping(Token, codecs={"scopes": _SCOPES}, generated={"id"})


class Tokens:
    """Reads and writes access tokens."""

    def __init__(self, reader: Engine, writer: GroupCommit) -> None:
        self._reader = reader
        self._writer = writer

    def create(
        self,
        *,
        name: str,
        digest: str,
        scopes: Collection[Scope],
        created_at: float,
        project: str | None = None,
        expires_at: float | None = None,
    ) -> Token:
        """Add a token and return it when it is on disk. Errors: Conflict if the name is taken."""
        row = {
            "name": name,
            "digest": digest,
            "scopes": _SCOPES.encode(scopes),
            "project": project,
            "created_at": created_at,
            "expires_at": expires_at,
        }

        def add(transaction: Transaction) -> None:
            try:
                transaction.connection.execute(insert(tables.token), row)
            except IntegrityError as error:
                raise Conflict(f"token {name!r} already exists; revoke it or choose another name") from error

        self._writer.submit(add).result()
        token = self.by_digest(digest)
        assert token is not None
        return token

    def by_digest(self, digest: str) -> Token | None:
        """Return the token of a digest, expired or not."""
        found = select(tables.token).where(tables.token.c.digest == digest)
        with self._reader.connect() as connection:
            row = connection.execute(found).one_or_none()
        return None if row is None else _TOKEN.from_row(row)

    def list(self) -> tuple[Token, ...]:
        """Return all tokens by name, including expired ones."""
        with self._reader.connect() as connection:
            return tuple(
                _TOKEN.from_row(row) for row in connection.execute(select(tables.token).order_by(tables.token.c.name))
            )

    def revoke(self, name: str) -> Future[None]:
        """Delete a token. Errors, from the future: NotFound."""

        def remove(transaction: Transaction) -> None:
            named = delete(tables.token).where(tables.token.c.name == name)
            if not transaction.connection.execute(named).rowcount:
                raise NotFound("token", name)

        return self._writer.submit(remove)

    def any(self) -> bool:
        """Whether there is a token, expired or not."""
        with self._reader.connect() as connection:
            return connection.execute(select(tables.token.c.id).limit(1)).first() is not None
