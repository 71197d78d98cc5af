"""The JSON of `trmon replay`."""

from __future__ import annotations

from typing import Self

from trmon.api.http.json_numbers import Number
from trmon.api.http.response_model import ResponseModel
from trmon.domain.recording import RecordedToken, Replay, ReplayedUpdate


class ReplayedUpdateOut(ResponseModel):
    """The recorded calls of a step and update: what was decided, and the signals of their sequences."""

    step: int
    update: int | None
    n_calls: int
    n_sequences: int
    n_rejected: int
    n_differing: int
    notes: list[str]
    primary: str | None
    signals: dict[str, Number]

    @classmethod
    def of(cls, update: ReplayedUpdate) -> Self:
        """Return the part of the answer for an update."""
        return cls.from_fields(
            update, n_calls=len(update.calls), notes=list(update.notes), primary=update.columns.primary
        )


class RecordedTokenOut(ResponseModel):
    """A token with a large |d|; the log-probs are the two of the primary pair."""

    rank: int
    step: int
    update: int | None
    chunk: int
    sequence: int
    position: int
    token_id: int | None
    rollout_logprob: Number
    trainer_logprob: Number
    d: Number
    text: str | None

    @classmethod
    def of(cls, found: RecordedToken) -> Self:
        """Return the part of the answer for a token."""
        names = ("sequence", "position", "token_id", "rollout_logprob", "trainer_logprob", "d")
        return cls.from_fields(found, **{name: getattr(found.token, name) for name in names})


class ReplayOut(ResponseModel):
    """What a recording shows: its updates, how many sequences were decided otherwise then, and its worst tokens."""

    n_differing: int
    updates: list[ReplayedUpdateOut]
    worst: list[RecordedTokenOut]

    @classmethod
    def of(cls, found: Replay) -> Self:
        """Return the answer for a replay."""
        return cls(
            n_differing=found.n_differing,
            updates=[ReplayedUpdateOut.of(update) for update in found.updates],
            worst=[RecordedTokenOut.of(token) for token in found.worst],
        )
