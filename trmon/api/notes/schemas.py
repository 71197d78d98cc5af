"""Request and response schemas of notes."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from trmon.api.http.response_model import ResponseModel
from trmon.domain.runs.run_note import MAX_AUTHOR_LENGTH, MAX_NOTE_LENGTH


class NoteIn(BaseModel):
    """A new note; without `step` it is on the whole run."""

    model_config = ConfigDict(extra="forbid")

    text: str = Field(
        min_length=1, max_length=MAX_NOTE_LENGTH, description="Several lines are allowed, other control characters not."
    )
    step: int | None = Field(None, ge=0, lt=1 << 62)
    author: str | None = Field(
        None, min_length=1, max_length=MAX_AUTHOR_LENGTH, description="Defaults to the token's name."
    )


class NoteOut(ResponseModel):
    """A note on a run, or on one of its steps."""

    id: int
    step: int | None
    author: str
    text: str
    at: float
