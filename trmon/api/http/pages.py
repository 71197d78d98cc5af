"""Pages of lists: keyset cursors in, items and the next cursor out."""

from __future__ import annotations

from typing import Annotated, Generic, TypeVar

from fastapi import Query
from pydantic import BaseModel, Field

T = TypeVar("T")

Limit = Annotated[int, Query(ge=1, le=1000, description="Most items of a page.")]
After = Annotated[str | None, Query(max_length=256, description="The `next` of the page before.")]


class PageOut(BaseModel, Generic[T]):
    """Some items of a list."""

    items: list[T]
    next: str | None = Field(description="Pass it as `after` for the next page; null on the last one.")
