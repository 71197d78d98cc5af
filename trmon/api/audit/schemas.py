"""Response schema of the audit log."""

from __future__ import annotations

from typing import Any

from trmon.api.http.response_model import ResponseModel
from trmon.domain.model.audit import AuditAction


class AuditEntryOut(ResponseModel):
    """An administrative action: `before` is null for what was created, `after` for what was deleted."""

    id: int
    at: float
    actor: str
    token_id: int | None
    action: AuditAction
    project: str | None
    target: str
    before: dict[str, Any] | None
    after: dict[str, Any] | None
