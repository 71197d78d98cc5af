"""Keyset pagination: a page of items and the cursor of the next page."""

from __future__ import annotations

from typing import Annotated, Generic, TypeVar

from fastapi import Query
from pydantic import BaseModel, Field

T = TypeVar("T")

Limit = Annotated[int, Query(ge=1, le=1000, description="Maximum number of items per page.")]
After = Annotated[str | None, Query(max_length=256, description="The `next` of the previous page.")]


class PageOut(BaseModel, Generic[T]):
    """One page of a list."""

    items: list[T]
    next: str | None = Field(description="Pass it as `after` to get the next page; null on the last page.")
