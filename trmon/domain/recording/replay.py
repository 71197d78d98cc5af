"""Replay: the updates of a recording with their signals, and its worst tokens."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from trmon.domain.analysis.worst_tokens import WorstToken
from trmon.domain.batches.merged_columns import merge_columns
from trmon.domain.recording.replayed_call import RecordedTokens, ReplayedCall, replay_call
from trmon.domain.signals.columns_signals import columns_signals
from trmon_client.core.columns.columns import Columns


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class ReplayedUpdate:
    """All recorded calls of a step and update, with the signals of their sequences together."""

    step: int
    update: int | None
    calls: tuple[ReplayedCall, ...]
    columns: Columns
    signals: dict[str, float]
    n_rejected: int

    @property
    def n_sequences(self) -> int:
        """The number of sequences, empty ones included."""
        return self.columns.n_sequences

    @property
    def n_differing(self) -> int:
        """How many sequences were decided otherwise then, as far as that is comparable."""
        return sum(call.n_differing or 0 for call in self.calls)

    @property
    def notes(self) -> tuple[str, ...]:
        """Why decisions are not comparable, without duplicates."""
        return tuple(dict.fromkeys(call.why for call in self.calls if call.why))


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedToken:
    """A token of a recording, and the call that it is of; `text` is that of its sequence, if it was recorded."""

    rank: int
    step: int
    update: int | None
    chunk: int
    token: WorstToken
    text: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """The updates of a recording in order, and the tokens with the largest |d|, largest first."""

    updates: tuple[ReplayedUpdate, ...]
    worst: tuple[RecordedToken, ...]

    @property
    def n_differing(self) -> int:
        """How many sequences were decided otherwise then."""
        return sum(update.n_differing for update in self.updates)


def replay(recorded: Iterable[RecordedTokens], *, n_worst: int) -> Replay:
    """Return the replay of calls. Errors: InvalidInput naming the file of a call that cannot be computed again."""
    by_update: dict[tuple[int, int], list[ReplayedCall]] = defaultdict(list)
    for one in recorded:
        update = -1 if one.call.update is None else one.call.update
        by_update[one.call.step, update].append(replay_call(one, n_worst=n_worst))
    updates = tuple(_merged(calls) for _, calls in sorted(by_update.items()))
    tokens = [token for update in updates for call in update.calls for token in _tokens(call)]
    tokens.sort(key=lambda found: -abs(found.token.d))
    return Replay(updates=updates, worst=tuple(tokens[:n_worst]))


def _merged(calls: Sequence[ReplayedCall]) -> ReplayedUpdate:
    ordered = sorted(calls, key=lambda call: (call.recorded.rank, call.recorded.call.chunk))
    columns = merge_columns([call.columns for call in ordered])
    first = ordered[0].recorded.call
    return ReplayedUpdate(
        step=first.step,
        update=first.update,
        calls=tuple(ordered),
        columns=columns,
        signals=columns_signals(columns),
        n_rejected=sum(int(np.sum(~call.accepted)) for call in ordered),
    )


def _tokens(call: ReplayedCall) -> Iterable[RecordedToken]:
    recorded = call.recorded
    texts = {sample.sequence: sample.text for sample in recorded.call.texts}
    for token in call.worst:
        yield RecordedToken(
            rank=recorded.rank,
            step=recorded.call.step,
            update=recorded.call.update,
            chunk=recorded.call.chunk,
            token=token,
            text=texts.get(token.sequence),
        )
