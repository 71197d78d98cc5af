"""Request and response schemas of tokens."""

from __future__ import annotations

from typing import Self

from pydantic import BaseModel, ConfigDict, Field

from trmon.api.http.response_model import ResponseModel
from trmon.domain.model.access import Scope, Token


class TokenIn(BaseModel):
    """A new token."""

    model_config = ConfigDict(extra="forbid")

    name: str
    scopes: set[Scope] = Field(min_length=1)
    project: str | None = Field(None, description="Restrict the token to this project.")
    days: float = Field(365.0, gt=0, le=36_500, description="The number of days the token is valid.")


class RotationIn(BaseModel):
    """How a token is replaced by a new one."""

    model_config = ConfigDict(extra="forbid")

    overlap_hours: float = Field(24.0, ge=0, le=24 * 366, description="How long the old secret stays valid, in hours.")
    days: float = Field(365.0, gt=0, le=36_500, description="The number of days the new token is valid.")


class TokenOut(ResponseModel):
    """A token, without its secret; `last_used_at` is accurate to a minute."""

    name: str
    scopes: list[Scope]
    project: str | None
    created_at: float
    expires_at: float | None
    last_used_at: float | None
    replaced_at: float | None

    @classmethod
    def of(cls, token: Token) -> Self:
        """Return the response for a token."""
        return cls.from_fields(token, scopes=sorted(token.scopes, key=lambda scope: scope.value))


class NewTokenOut(TokenOut):
    """A new token with its secret, which cannot be shown again."""

    secret: str

    @classmethod
    def with_secret(cls, token: Token, secret: str) -> Self:
        """Return the response for a new token."""
        return cls(**TokenOut.of(token).model_dump(), secret=secret)
