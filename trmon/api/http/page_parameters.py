"""The query parameters of a page of a list."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query

Limit = Annotated[int, Query(ge=1, le=1000, description="Maximum number of items per page.")]
After = Annotated[str | None, Query(max_length=256, description="The `next` of the previous page.")]
