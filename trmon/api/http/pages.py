"""Keyset pagination: a page of items and the cursor of the next page."""

from __future__ import annotations

from typing import Generic, TypeVar

from pydantic import BaseModel, Field

T = TypeVar("T")


class PageOut(BaseModel, Generic[T]):
    """One page of a list."""

    items: list[T]
    next: str | None = Field(description="Pass it as `after` to get the next page; null on the last page.")
