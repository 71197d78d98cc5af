"""The audit log: who changed what, when, from what and to what."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any

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


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry:
    """One administrative action.

    `actor` is the name of a token with its id, `local` for a caller without a token, or `cli:USER` on the command line;
    `project` None means all projects. `before` is None for what was created, `after` for what was deleted.
    """

    id: int
    at: float
    actor: str
    token_id: int | None
    action: AuditAction
    project: str | None
    target: str
    before: AuditDocument | None
    after: AuditDocument | None
