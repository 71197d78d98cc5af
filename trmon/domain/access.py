"""Access to a service: tokens with their scopes, the log of who changed what, and quotas of projects."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any

from trmon.domain.errors import Forbidden


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

    def signed(self, author: str | None) -> str:
        """Return who acts: the token's name, and before it the name that the caller gives, if it is another."""
        if author is None or author == self.name:
            return self.name
        return author if self.token_id is None else f"{author} (token {self.name})"

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


AuditDocument = dict[str, Any]
"""The state of what was changed, without secrets."""


class AuditAction(Enum):
    """The administrative actions that the audit log records."""

    TOKEN_CREATE = "token.create"  # noqa: S105 - an action, not a secret
    TOKEN_ROTATE = "token.rotate"  # noqa: S105
    TOKEN_REVOKE = "token.revoke"  # noqa: S105
    POLICY_CHANGE = "policy.change"
    POLICY_ROLLBACK = "policy.rollback"
    ADAPTATION_CHANGE = "adaptation.change"
    RUN_CHANGE = "run.change"
    RUN_DELETE = "run.delete"
    RUN_IMPORT = "run.import"
    NOTE_CREATE = "note.create"
    NOTE_DELETE = "note.delete"
    ALERT_ACKNOWLEDGE = "alert.acknowledge"
    SILENCE_CREATE = "silence.create"
    SILENCE_END = "silence.end"
    QUOTA_CHANGE = "quota.change"
    DATABASE_RESTORE = "database.restore"


class QuotaResource(Enum):
    """The resources that a quota limits."""

    RUNS = "runs"
    BYTES = "bytes"
    RATE = "rate"
    NEW_RUNS = "new_runs"
    """Of a caller, not of a project: see TRMON_NEW_RUNS_PER_HOUR."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Quota:
    """The limits of a project; None is no limit.

    Args: max_runs: runs, archived ones included; max_bytes: stored report bytes; reports_per_second: for each API
    process.
    """

    project: str
    max_runs: int | None = None
    max_bytes: int | None = None
    reports_per_second: float | None = None

    def limits(self) -> dict[QuotaResource, float]:
        """Return the limits that are set, by resource."""
        limits = {
            QuotaResource.RUNS: self.max_runs,
            QuotaResource.BYTES: self.max_bytes,
            QuotaResource.RATE: self.reports_per_second,
        }
        return {resource: limit for resource, limit in limits.items() if limit is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaUsage:
    """What a project has stored: the names of its runs, and the bytes of its reports."""

    runs: frozenset[str]
    report_bytes: int
