"""Access control: tokens, their scopes and their project."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from trmon.domain.model.errors import Forbidden


class Scope(Enum):
    """The scope of a token; admin includes all others."""

    INGEST = "ingest"
    READ = "read"
    ADMIN = "admin"


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """The permissions of a caller, passed to every query; `project` None means all projects."""

    name: str
    scopes: frozenset[Scope]
    project: str | None = None
    token_id: int | None = None

    @property
    def caller(self) -> str:
        """The caller's name among all callers: tokens of different projects may share a name."""
        return f"{self.project or ''}/{self.name}"

    def require(self, scope: Scope, *, project: str | None = None) -> None:
        """Raise Forbidden unless the caller has the scope, and access to the project if one is named."""
        if scope not in self.scopes and Scope.ADMIN not in self.scopes:
            raise Forbidden(f"token {self.name!r} lacks the scope {scope.value!r}")
        if project is not None and self.project is not None and project != self.project:
            raise Forbidden(f"token {self.name!r} belongs to another project")


EVERYTHING = Access(name="local", scopes=frozenset({Scope.ADMIN}))
"""The permissions of the service itself, and of callers of a loopback service without tokens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """A stored token: the SHA-256 digest of its secret, never the secret itself."""

    id: int
    name: str
    digest: str
    scopes: frozenset[Scope]
    project: str | None
    created_at: float
    expires_at: float | None
    last_used_at: float | None = None
    replaced_at: float | None = None

    def access(self) -> Access:
        """Return the permissions of its bearer."""
        return Access(name=self.name, scopes=self.scopes, project=self.project, token_id=self.id)

    def is_valid(self, *, now: float) -> bool:
        """Whether it has not expired."""
        return self.expires_at is None or now < self.expires_at
