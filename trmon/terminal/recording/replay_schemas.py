"""The JSON of `trmon replay`."""

from __future__ import annotations

from trmon.domain.recording import RecordedToken, Replay, ReplayedUpdate
from trmon_client.api.answers import AnswerInfo, ApiNumber


class ReplayedUpdateInfo(AnswerInfo, frozen=True, kw_only=True):
    """The recorded calls of a step and update: what was decided, and the signals of their sequences."""

    step: int
    update: int | None
    n_calls: int
    n_sequences: int
    n_rejected: int
    n_differing: int
    notes: tuple[str, ...]
    primary: str | None
    signals: dict[str, ApiNumber]


class RecordedTokenInfo(AnswerInfo, frozen=True, kw_only=True):
    """A token with a large |d|; the log-probs are the two of the primary pair."""

    rank: int
    step: int
    update: int | None
    chunk: int
    sequence: int
    position: int
    token_id: int | None
    rollout_logprob: ApiNumber
    trainer_logprob: ApiNumber
    d: ApiNumber
    text: str | None


class ReplayInfo(AnswerInfo, frozen=True, kw_only=True):
    """What a recording shows: its updates, how many sequences were decided otherwise then, and its worst tokens."""

    n_differing: int
    updates: tuple[ReplayedUpdateInfo, ...]
    worst: tuple[RecordedTokenInfo, ...]


def _replayed_update_info(update: ReplayedUpdate) -> ReplayedUpdateInfo:
    """Return the part of the answer for an update."""
    return ReplayedUpdateInfo.from_fields(
        update, n_calls=len(update.calls), notes=list(update.notes), primary=update.columns.primary
    )


def _recorded_token_info(found: RecordedToken) -> RecordedTokenInfo:
    """Return the part of the answer for a token."""
    names = ("sequence", "position", "token_id", "rollout_logprob", "trainer_logprob", "d")
    return RecordedTokenInfo.from_fields(found, **{name: getattr(found.token, name) for name in names})


def replay_info(found: Replay) -> ReplayInfo:
    """Return the answer for a replay."""
    return ReplayInfo.from_fields(
        n_differing=found.n_differing,
        updates=[_replayed_update_info(update) for update in found.updates],
        worst=[_recorded_token_info(token) for token in found.worst],
    )
