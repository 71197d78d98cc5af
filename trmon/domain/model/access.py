"""Who may do what: tokens, their scopes and the project they are for."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from trmon.domain.model.errors import Forbidden


class Scope(Enum):
    """What a token may do; admin may do everything."""

    INGEST = "ingest"
    READ = "read"
    ADMIN = "admin"


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """What a caller may do; `project` None means every project. Every query carries it."""

    name: str
    scopes: frozenset[Scope]
    project: str | None = None

    def require(self, scope: Scope, *, project: str | None = None) -> None:
        """Raise Forbidden unless the scope, and the project if one is named, are covered."""
        if scope not in self.scopes and Scope.ADMIN not in self.scopes:
            raise Forbidden(f"token {self.name!r} lacks the scope {scope.value!r}")
        if project is not None and self.project is not None and project != self.project:
            raise Forbidden(f"token {self.name!r} is for another project")


EVERYTHING = Access(name="local", scopes=frozenset({Scope.ADMIN}))
"""What a caller may do on a loopback service without tokens, and what the service itself may do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """A token as the store keeps it: the SHA-256 of its secret, never the secret."""

    id: int
    name: str
    digest: str
    scopes: frozenset[Scope]
    project: str | None
    created_at: float
    expires_at: float | None

    def access(self) -> Access:
        """Return what its bearer may do."""
        return Access(name=self.name, scopes=self.scopes, project=self.project)
