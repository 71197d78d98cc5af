"""The base of response schemas, which copies the fields of domain values by name."""

from __future__ import annotations

from typing import Any, Self

from pydantic import BaseModel, ConfigDict


class ResponseModel(BaseModel):
    """A response schema; nested schemas read domain values by attribute too."""

    model_config = ConfigDict(from_attributes=True)

    @classmethod
    def from_fields(cls, source: object, **fields: Any) -> Self:
        """Return a response with the attributes of a domain value; `fields` are those it lacks or names otherwise."""
        copied = {name: getattr(source, name) for name in cls.model_fields if hasattr(source, name)}
        return cls.model_validate(copied | fields)
