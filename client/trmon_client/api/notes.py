"""Notes on runs and steps as a service answers them."""

from __future__ import annotations

from trmon_client.api.answers import AnswerInfo


class NoteInfo(AnswerInfo, frozen=True, kw_only=True):
    """A note on a run, or on one of its steps."""

    id: int
    step: int | None
    author: str
    text: str
    at: float
