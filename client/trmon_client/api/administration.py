"""Answers for administrators: tokens, quotas, the audit log; and the probes."""

from __future__ import annotations

from typing import Any

from trmon_client.api.answers import AnswerInfo, AuditAction, Scope


class AuditEntryInfo(AnswerInfo, frozen=True, kw_only=True):
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


class HealthInfo(AnswerInfo, frozen=True, kw_only=True):
    """Success; failures are problem responses."""

    status: str = "ok"


class QuotaInfo(AnswerInfo, frozen=True, kw_only=True):
    """The limits of a project; null is no limit."""

    project: str
    max_runs: int | None
    max_bytes: int | None
    reports_per_second: float | None


class TokenInfo(AnswerInfo, frozen=True, kw_only=True):
    """A token, without its secret; `last_used_at` is accurate to a minute."""

    name: str
    scopes: tuple[Scope, ...]
    project: str | None
    created_at: float
    expires_at: float | None
    last_used_at: float | None
    replaced_at: float | None


class NewTokenInfo(TokenInfo, frozen=True, kw_only=True):
    """A new token with its secret, which cannot be shown again."""

    secret: str
